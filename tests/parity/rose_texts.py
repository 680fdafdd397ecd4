"""Texts that differ in script, length and oddity."""

import numpy as np

_WRITTEN = (
    "A man is playing a guitar on stage.",
    "Someone performs music with a guitar.",
    "The stock market fell sharply after the announcement.",
    "",
    " ",
    "\n\t\r\n",
    "a",
    "?",
    "null",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 thumb",
    "🙂" * 40,
    "今日は天気がいいから、散歩しましょう。",
    "机器学习正在改变世界，尤其是自然语言处理。",
    "안녕하세요, 만나서 반갑습니다.",
    "ﾊﾝｶｸｶﾀｶﾅ ｶﾞｷﾞｸﾞ",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "שלום עולם, זה מבחן",
    "mixed עברית and English and عربي in one line",
    "Ünïcödé ñandú façade naïve Ångström",
    "e\u0301 e\u0300 n\u0303 decomposed; \u00e9 \u00e8 \u00f1 composed",
    "Привет, мир! Как дела?",
    "Γειά σου Κόσμε",
    "हिन्दी में एक वाक्य।",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "null \u0000 byte \u0000 inside",
    "\u200bzero\u200bwidth\ufeff marks\u00ad",
    "\x07\x1b[31mcontrol\x1b[0m",
    "supercalifragilisticexpialidocious" * 3,
    "x" * 100,
    "x" * 500,
    "1234567890" * 12,
    "3.14159 -2.71828 1e-10 0xDEADBEEF",
    "def f(x: int) -> list[int]:\n    return [i ** 2 for i in range(x) if i % 2 == 0]",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;",
    "<div class='a'>&nbsp;<b>bold</b></div>",
    '{"key": ["value", 1, null, true]}',
    "https://example.org/path?q=a%20b&x=1#frag",
    "[CLS] literal [SEP] special [MASK] tokens [PAD] [UNK]",
    "UPPER CASE AND lower case AnD MiXeD",
    "don't can't won't it's I'd've",
    "-- ... !!! ??? ;;; ::: ((( )))",
    "∀x∈ℝ: x² ≥ 0 ∧ √(x²) = |x|",
    "\U00010348\U0001f600\U000e0041",
)
_WORDS = (
    *("time", "person", "year", "way", "day", "thing", "world", "life", "hand", "part", "child", "eye", "woman"),
    *("unbelievably", "antidisestablishmentarianism", "naïve", "œuvre", "straße", "C++", "foo_bar()", "e=mc²"),
    *("北京", "東京", "서울", "москва", "αθήνα", "עיר", "مدينة", "🚀", "✨", "int32", "λ=0.5", "2024-01-31", "$99.99"),
)


def varied_texts(count: int) -> list[str]:
    """The 43 written ones, then random mixtures of words from 1 to 400 long."""
    rng = np.random.default_rng(42)
    mixtures = (" ".join(rng.choice(_WORDS, int(np.exp(rng.uniform(0, 6))))) for _ in range(count - len(_WRITTEN)))
    return [*_WRITTEN, *mixtures]
