#!/usr/bin/env bash
# bundle.sh BUILD_FOLDER DIST_FOLDER: makes DIST_FOLDER/gpumem-VERSION-linux-x86_64.tar.xz, which runs on any x86-64
# Linux with glibc 2.36 or newer and needs nothing else installed. deploy/bundle/README.md lists its contents.
set -Eeuo pipefail
trap 'printf "bundle: failed: line %s: %s\n" "$LINENO" "$BASH_COMMAND" >&2' ERR
build=$(realpath "$1")
mkdir -p "$2"
dist=$(realpath "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$(realpath "$here/../..")
readonly glibc_floor=2.36 most_bytes=50000000
# glibc's own, which come from the machine the bundle runs on.
readonly glibc='^(linux-vdso|ld-linux-x86-64|libc|libm|libmvec|libdl|libpthread|librt|libresolv|libutil|libanl|libnsl|libnss_.*)\.so'
# Libraries of the machine's GPU driver, or of the simulated one in its place.
readonly driver='^(libcuda|libnvidia-ml)\.so'
# Compiled in: headers and static libraries whose licences go along, too.
readonly compiled_in=(libboost1.81-dev libspdlog-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libgtest-dev)
# Of Python's standard library: what no part of the bundle uses.
readonly not_of_python='/(idlelib|tkinter|turtledemo|turtle\.py|lib2to3|ensurepip|venv|distutils|pydoc_data|pydoc\.py|test|unittest|curses|dbm|sqlite3|wsgiref|xmlrpc|email/architecture\.rst|config-[^/]*|_sysconfigdata[^/]*|sitecustomize\.py|LICENSE\.txt|EXTERNALLY-MANAGED)(/|$)|lib-dynload/(_curses|_dbm|_gdbm|_sqlite3|_tkinter|_test|_ctypes_test|_xx|xx|_crypt|nis|readline|ossaudiodev|_codecs|_multibytecodec|_ssl|audioop)'

die() { printf 'bundle: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=gpumem-$version-linux-x86_64
top=$work/$name

elf_files() { LC_ALL=C grep -rlUP '^\x7fELF' "$top"; }

install_programs() {
  local component library
  for component in gpumemd gpumem libgpumem0 libgpumem-dev demo acceptance; do
    cmake --install "$build" --prefix "$top" --strip --component $component > "$work/install.log"
  done
  # The libraries that load with an older glibc, where the caller has built them.
  if [ -n "${GPUMEM_BUNDLE_LIBRARY:-}" ]; then
    strip --strip-unneeded -o "$top/lib/libgpumem.so.$version" "$GPUMEM_BUNDLE_LIBRARY"
    for library in libcuda.so.1 libnvidia-ml.so.1; do
      strip --strip-unneeded -o "$top/lib/gpumem/shim-$version/$library" \
        "$(dirname "$GPUMEM_BUNDLE_LIBRARY")/shim/lib/$library"
    done
  fi
  # A service names where its programs lie, which only the one who unpacks the bundle knows.
  rm -rf "$top/lib/systemd" "$top/lib/sysusers.d" "$top/lib/tmpfiles.d"
}

install_texts() {
  install -Dm 644 "$here/BUNDLE.md" "$top/README.md"
  install -Dm 644 "$source/LICENSE" "$top/LICENSE"
  install -Dm 644 -t "$top/share/gpumem/examples" "$source"/client/examples/*
  printf '%s\n' "$version" > "$top/VERSION"
}

install_scripts() {
  install -Dm 644 -t "$top/share/gpumem/demo" "$source"/client/demo/*.py
  local folder
  for folder in . sections frameworks; do
    install -Dm 644 -t "$top/share/gpumem/acceptance/$folder" "$source/tests/gpu/$folder"/*.py
  done
  install -Dm 644 -t "$top/share/gpumem/acceptance" "$source/tests/shim_programs/contract_differences.txt"
  install -Dm 644 -t "$top/share/gpumem/python/gpumem" "$source"/client/python/src/gpumem/*.*
  launcher gpu-acceptance acceptance/acceptance.py
  launcher gpumem-demo demo/demo.py
}

# launcher NAME SCRIPT: runs it by the bundle's own Python, which listens to no environment and writes nothing.
launcher() {
  sed "s|SCRIPT|$2|" "$here/launcher.sh" > "$top/$1"
  chmod 755 "$top/$1"
}

# Debian's interpreter finds its library by where it lies itself: ../lib/python3.N.
install_python() {
  local interpreter number package file
  interpreter=$(readlink -f /usr/bin/python3)
  number=$(basename "$interpreter")
  install -D "$interpreter" "$top/python/bin/python3"
  for package in "lib$number-minimal" "lib$number-stdlib"; do
    dpkg -L "$package"
  done | grep "^/usr/lib/$number/" | grep -vE "$not_of_python" | while IFS= read -r file; do
    if [ -f "$file" ]; then install -Dm 644 "$file" "$top/python/lib/${file#/usr/lib/}"; fi
  done
  origins+=("$interpreter" "/usr/lib/$number/os.py" "/usr/lib/$number/ctypes/__init__.py")
}

# Copies every library that the programs load, but glibc's, and notes where each came from.
install_libraries() {
  local file library path
  while read -r library path; do
    [[ $library =~ $glibc || -e $top/lib/$library ]] && continue
    [ -f "$path" ] || die "$library is not found on this system"
    install -Dm 644 "$path" "$top/lib/$library"
    origins+=("$path")
  done < <(elf_files | while IFS= read -r file; do
             LD_LIBRARY_PATH=$top/lib ldd "$file" 2> /dev/null | awk '/=>/{print $1, $3}'
           done | sort -u)
}

# Copies the libraries that our programs open by name while they run, but the driver's: the loader does not list them.
install_opened_libraries() {
  local library path
  while read -r library; do
    [[ $library =~ $glibc || $library =~ $driver || -e $top/lib/$library ]] && continue
    # awk reads to the end: ldconfig that is cut off is a failed pipe.
    path=$(ldconfig -p | awk -v name="$library" '$1 == name && path == "" {path = $NF} END {print path}')
    [ -f "$path" ] || die "$library, which a program opens while it runs, is not found on this system"
    install -Dm 644 "$path" "$top/lib/$library"
    origins+=("$path")
  done < <(strings "$top"/bin/* "$top"/lib/libgpumem.so | grep -oE '\blib[A-Za-z0-9_+-]+\.so\.[0-9.]*[0-9]$' | sort -u)
}

# Everything finds its libraries by where it lies itself.
set_run_paths() {
  local file
  elf_files | while IFS= read -r file; do
    patchelf --set-rpath "\$ORIGIN/$(realpath --relative-to="$(dirname "$file")" "$top/lib")" "$file"
  done
}

install_licences() {
  local origin package
  for origin in "${origins[@]}"; do
    dpkg -S "$origin" 2> /dev/null || dpkg -S "/usr$origin" 2> /dev/null || dpkg -S "${origin#/usr}" 2> /dev/null ||
      die "no package owns $origin, so its licence is not known"
  done | cut -d: -f1 | cat - <(printf '%s\n' "${compiled_in[@]}") | sort -u | while IFS= read -r package; do
    install -Dm 644 "/usr/share/doc/$package/copyright" "$top/licenses/$package"
    dpkg-query -W -f '${Package} ${Version} (source: ${source:Package} ${source:Version})\n' "$package" |
      sort -u >> "$top/licenses/PACKAGES"
  done
  install -Dm 644 -t "$top/licenses/common-licenses" /usr/share/common-licenses/*
}

# Nothing newer of glibc than promised, nothing taken from this system but glibc.
check() {
  local file needs
  elf_files | while IFS= read -r file; do
    needs=$(objdump -T "$file" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1)
    [ "$(printf '%s\n' "${needs:-0}" $glibc_floor | sort -V | tail -n 1)" = $glibc_floor ] ||
      die "${file#"$top/"} needs glibc $needs; $glibc_floor is promised"
    env -i /usr/bin/ldd "$file" | awk '/=>/{print $1, $3}' | while read -r library path; do
      [[ $library =~ $glibc || $path == "$top"/* ]] || die "${file#"$top/"} takes $library from $path"
    done
  done
}

pack() {
  local archive=$dist/$name.tar.xz
  XZ_OPT=${XZ_OPT:--9} tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$archive" "$name"
  [ "$(stat -c %s "$archive")" -le $most_bytes ] || die "$archive is larger than $most_bytes bytes"
  printf '%s\n' "$archive"
}

origins=()
install_programs
install_texts
install_scripts
install_python
install_opened_libraries
install_libraries
set_run_paths
install_licences
check
pack
