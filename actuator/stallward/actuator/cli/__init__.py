"""Commands that run on a node, without the packages that training needs."""
