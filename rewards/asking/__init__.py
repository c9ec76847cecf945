"""The other end of HTTP: how reward servers, ours and others', are asked, and what counts as an answer."""
