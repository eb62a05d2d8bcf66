"""The last minutes of every thread of a cluster: traces of single nodes -> moments."""
