"""The paper's figures and tables, computed beside what the paper says."""
