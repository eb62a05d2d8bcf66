"""The live service: traces come in, scores and events come out, and a person has the last word."""
