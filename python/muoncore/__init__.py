"""What muoncore does in Python: the plots and the page of a report."""
