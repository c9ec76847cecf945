"""Runs code that nobody has read: Linux namespaces, a system-call filter and limits, without help from root.

A *zygote* (a bare interpreter, one per worker) enters user, mount, network, IPC and UTS namespaces and leaves the file
system for a read-only view of the standard library. For every run it forks a *supervisor*, which forks the *inmate*
into a PID namespace and a private /work of its own, waits for it and ends it. Code of a completion and the tests are
two inmates: they share a socket that carries plain data (codec.py), nothing else.

client.py and probe.py are the side of the worker; everything else runs inside, on the standard library alone.

Withstands: network and file access; processes, threads and memory without end; endless output; signals to others;
`sys.exit` or `os._exit` before the tests; patched built-ins and modules; objects that equal everything; reading the
expected answers from memory, files or frames (they are never in the process that runs the completion); writing to
descriptors of the worker, its log among them (none is left).
Does not withstand: a hole in the kernel behind a call that the filter lets through (it lists what is denied, not what
is allowed); tests so weak that a wrong answer passes, or that take the word of an object of the completion's own class
(compare two of them, ask for its truth or what is `in` it); a completion that has learned the answers by heart. What
is readable inside, besides the standard library: the system's shared libraries, the host's name, and site-packages
where they were asked for.
Needs Linux 5.12 on x86_64 or aarch64 (the latter was never run) and unprivileged user namespaces.
"""
