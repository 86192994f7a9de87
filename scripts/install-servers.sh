#!/usr/bin/env bash
# Install the servers that tests talk to and the browser that they look with, where they are absent and this may be
# done. Called by make before tests. Without them their tests are skipped, by name.
set -euo pipefail

packages=()
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || packages+=(nginx-light)
command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || packages+=(pgbouncer)
command -v rabbitmq-server >/dev/null || [ -x /usr/sbin/rabbitmq-server ] || packages+=(rabbitmq-server)
command -v prometheus >/dev/null || packages+=(prometheus)
# Without a font a page has no text to measure, and chromium does not bring one.
# Debian's chromium in its headless shape: the same engine, a third faster. One that is there is used where it cannot be had.
[ -n "${REDRIVE_TEST_CHROMIUM:-}" ] || command -v chromium-headless-shell >/dev/null ||
  packages+=(chromium-headless-shell fonts-dejavu-core)
[ ${#packages[@]} = 0 ] && exit 0

say_skipped() {
  echo "install: ${packages[*]} not installed ($1): the tests that need them will be skipped" >&2
  exit 0
}

command -v apt-get >/dev/null || say_skipped "there is no apt-get"
[ "$(id -u)" = 0 ] || say_skipped "only root may"
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # a package's own service is not started: tests start theirs
timeout 120 apt-get update -qq || say_skipped "apt-get update failed"
# One by one: a browser that cannot be had takes no server with it.
for package in "${packages[@]}"; do
  timeout 300 apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
    echo "install: $package not installed (apt-get install failed): the tests that need it will be skipped" >&2
done
