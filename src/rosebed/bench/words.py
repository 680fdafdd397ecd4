"""Common English words that are one token each in the vocabularies of BERT, XLM-RoBERTa and Qwen.

So a text of n of them is n tokens, special ones aside, whichever of these models reads it.
"""

_TEXT = """
the of and to in is it you that he was for on are with as his they be at one have this from or
had by but what all were when we there can an your which their said if do will each about how up
out them then she many some so these would other into has more her two like him see time could
no make than first been its who now people my made over did down only way find use may water
long little very after words called just where most know get through back much before go good
new write our used me man too any day same right look think also around another came come work
three word must because does part even place well such here take why things help put years
different away again off went old number great tell men say small every found still between name
should home big give air line set own under read last never us left end along while might next
sound below something thought both few those always show large often house world going want
school important until form food keep children land side without boy once animals life took
sometimes four head above kind almost live page got earth need far hand high year mother light
parts country father let night following picture being study second eyes soon times story boys
since white days ever paper hard near sentence better best during today others however sure
means try young sun ways thing whole hear example heard change answer room sea against top
turned learn point city play five using usually
"""
WORDS = tuple(_TEXT.split())
