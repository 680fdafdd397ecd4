"""The wire between Ivy and Tulip: generated messages (`make proto`) and their translation to core types."""
