"""What tests of Duetime, and of what is built on it, are made with. Shipped."""
