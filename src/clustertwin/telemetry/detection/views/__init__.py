"""The views of a detector. Each turns measurements of a thread into a p-value; `view_table` lists them all."""
