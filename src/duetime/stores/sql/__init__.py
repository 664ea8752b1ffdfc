"""What the SQL stores share: the unified table's columns, and how lists are asked for."""
