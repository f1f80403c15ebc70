"""The same for sources that name no backend: pip asks setuptools for their metadata."""
from scikit_build_core import build


class __legacy__:  # pylint: disable=invalid-name
    prepare_metadata_for_build_wheel = staticmethod(build.prepare_metadata_for_build_wheel)
