"""`rosebed verify`: are the vectors right? Compares with the reference library, or with what it once said."""
