"""What launch overhead is and what removes it."""
