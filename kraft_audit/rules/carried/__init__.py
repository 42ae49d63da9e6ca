"""What judging one plan leaves for the next: the rows that rules still need, and how a history goes on from them."""
