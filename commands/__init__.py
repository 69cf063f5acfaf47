"""The console command: thin, it calls the other packages and prints."""
