"""Static pages for those who were not there, and findings and figures for boards that exist already."""
