# Sourced by the wrappers, which set $here: the bundle's folder, its libraries, Open MPI's new place, the torch wheel's libraries.
# Done once a job: ranks inherit the result from mpirun.
bundle=$(dirname "$here")
if [ "${MAGISTER_BUNDLE:-}" != "$bundle" ]; then
  wheels=$("${MAGISTER_PYTHON:-python3}" "$here/torch_libraries.py" "$(cat "$here/torch_version")") || exit 78
  libraries=$bundle/lib:$wheels
  # The machine's own C++ library wherever it is new enough: the driver's parts may need a newer one than ours.
  newest=$(ldconfig -p 2>/dev/null | sed -n 's/.*libstdc++\.so\.6 .*x86-64.*=> //p' | head -n 1)
  if [ -z "$newest" ] || ! grep -q GLIBCXX_3.4.30 "$newest"; then
    libraries=$libraries:$bundle/lib/gcc
  fi
  for cuda in /usr/local/cuda/lib64; do
    [ ! -d "$cuda" ] || libraries=$libraries:$cuda
  done
  export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  # PMIx replaces folders one by one: some were given to its build whole.
  pmix=$bundle/openmpi/lib/x86_64-linux-gnu/pmix2
  export OPAL_PREFIX="$bundle/openmpi" PMIX_INSTALL_PREFIX="$bundle/openmpi" PMIX_PREFIX="$bundle/openmpi"
  export PMIX_LIBDIR="$pmix/lib" PMIX_PKGLIBDIR="$pmix/lib/pmix" PMIX_DATADIR="$pmix/share" PMIX_PKGDATADIR="$pmix/share/pmix"
  export HWLOC_PLUGINS_PATH="$bundle/openmpi/hwloc"
  # Without a remote shell Open MPI does not even start ranks of this host, unless told that there is no other. A container's only
  # user is often root, which it refuses unless told twice.
  if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
    export OMPI_MCA_plm=isolated
  fi
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  export PATH="$bundle/bin:$PATH" MAGISTER_BUNDLE="$bundle"
fi
