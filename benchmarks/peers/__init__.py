"""One module a program that is compared; each runs in a process of its own."""
