#!/bin/sh
# Looks for what building needs and cannot install itself. Prints one message that names the packages; exit code 2.
# Usage: preflight.sh PYTHON
set -eu
python=$1

needs=""
need() { # WHAT DEBIAN FEDORA
    needs="$needs
  $1    (Debian, Ubuntu: apt install $2; Fedora: dnf install $3)"
}

if ! command -v "$python" >/dev/null 2>&1; then
    need "Python 3.11 or newer, as '$python'" python3 python3
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    need "Python 3.11 or newer; '$python' is $("$python" -V 2>&1); choose one with make PYTHON=python3.12" python3.12 python3.12
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    need "the venv module of '$python'" python3-venv python3-libs
fi
if ! command -v "${CC:-cc}" >/dev/null 2>&1; then
    need "a C compiler, as '${CC:-cc}'" "gcc libc6-dev" gcc
elif ! printf '#include <stdio.h>\n' | "${CC:-cc}" -E - >/dev/null 2>&1; then
    need "the headers of the C library" libc6-dev glibc-devel
fi
command -v cmake >/dev/null 2>&1 || need "CMake 3.24 or newer" cmake cmake

if [ -n "$needs" ]; then
    printf 'cflow: missing on this machine:%s\n' "$needs" >&2
    exit 2
fi
