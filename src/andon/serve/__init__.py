"""The HTTP server: sessions and runs over HTTP and SSE, with every verb of the library."""
