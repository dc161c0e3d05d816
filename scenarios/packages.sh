# Sourced by scenarios/quickstart and tests/run: what the build needs, from Debian (or Ubuntu) by apt.

build_packages="g++ meson ninja-build pkg-config libeigen3-dev libboost-program-options-dev \
libtomlplusplus-dev nlohmann-json3-dev libsimdjson-dev libfmt-dev zlib1g-dev libgloo-dev \
node-d3"

fail() {
  echo "${0##*/}: error: $1" >&2
  exit 3
}

# install_packages PACKAGE…: installs those that are missing; says nothing to do otherwise.
install_packages() {
  local missing="" package
  command -v dpkg-query >/dev/null 2>&1 ||
    fail "this script installs with apt (Debian 12 or 13, Ubuntu 24.04 or newer); elsewhere install: $*"
  for package in "$@"; do
    if [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" != "install ok installed" ]; then
      missing="$missing $package"
    fi
  done
  if [ -z "$missing" ]; then
    echo "packages: all installed"
    return
  fi
  local as_root=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
      fail "not root and no sudo; as root run: apt-get install$missing"
    as_root="sudo"
  fi
  echo "packages: installing$missing"
  local log
  log=$(mktemp)
  if ! { $as_root apt-get update -qq &&
    $as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "apt-get could not install:$missing (log: $log)"
  fi
  rm -f "$log"
}
