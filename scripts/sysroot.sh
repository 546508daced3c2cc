# Shared by the scripts that compile for aarch64: the cross compiler, qemu-user, and Debian's libraries in a folder.
SYSROOT=$ROOT/build/aarch64/sysroot
# Their packages are unpacked in $SYSROOT, since installing them would change the host's own. Python is for wheels.
SYSROOT_PACKAGES=(libhwloc-dev libhwloc15 libssl-dev libssl3 libgtest-dev libhwy-dev libspdlog-dev libspdlog1.10 libfmt-dev libfmt9
  libfabric-dev python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libpython3.11-dev libexpat1 zlib1g libffi8)

cross_tools() {
  local missing=()
  command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
  command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
  [ ${#missing[@]} = 0 ] || DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "${missing[@]}"
}

# apt-get with both architectures and with lists of its own.
apt_of_both() {
  local folder=$ROOT/build/aarch64
  apt-get -qq -o APT::Architectures::="$(dpkg --print-architecture)" -o APT::Architectures::=arm64 -o "Dir::State::Lists=$folder/lists" \
    -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root "$@"
}

cross_libraries() {
  local folder=$ROOT/build/aarch64 wanted package
  wanted=$(fingerprint scripts/sysroot.sh)
  [ "$(cat "$SYSROOT/complete" 2>/dev/null)" != "$wanted" ] || return 0
  rm -rf "$SYSROOT" "$folder/packages"
  mkdir -p "$SYSROOT" "$folder"/{packages,lists/partial,cache/archives/partial}
  try_again apt_of_both update || return 1
  (cd "$folder/packages" && try_again apt_of_both download "${SYSROOT_PACKAGES[@]/%/:arm64}" nlohmann-json3-dev) || return 1
  for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$SYSROOT" || return 1; done
  echo "$wanted" >"$SYSROOT/complete"
}
