#!/usr/bin/env bash
# Install Redrive and its development tools into a virtual environment. Called by make as: install.sh VENV
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1

fail() {
  echo "install: $*" >&2
  exit 1
}

if command -v uv >/dev/null; then
  if [ -f uv.lock ]; then
    exec env UV_PROJECT_ENVIRONMENT="$venv" uv sync --extra dev --frozen
  fi
  uv venv --quiet --allow-existing "$venv"
  exec uv pip install --quiet --python "$venv/bin/python" -e '.[dev]'
fi

command -v python3 >/dev/null || fail "python3 was not found. Install Python 3.11 or newer."
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$(python3 --version) is too old: Redrive needs Python 3.11 or newer."

make_venv() { python3 -m venv --clear "$venv"; }

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  # Debian and Ubuntu ship venv apart from Python; without it the first try fails at its last step.
  if ! make_venv >/dev/null 2>&1; then
    command -v apt-get >/dev/null ||
      fail "python3 cannot make a virtual environment (python3 -m venv). Install Python's venv module."
    [ "$(id -u)" = 0 ] ||
      fail "python3 cannot make a virtual environment. Run: sudo apt-get install python3-venv"
    apt-get update -qq
    apt-get install -y -qq python3-venv
    make_venv || fail "python3 -m venv still fails; see above."
  fi
fi

exec "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev]'
