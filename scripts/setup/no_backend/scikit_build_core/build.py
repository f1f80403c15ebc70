"""What pip asks the build backend of a source for before it saves the archive: the metadata, here from the PKG-INFO that every source carries.
Without it pip first installs the backend and what that needs, in whatever versions, to fetch one file (10 s); setup.sh only unpacks the archive.
"""
import email
import pathlib
import shutil


def prepare_metadata_for_build_wheel(folder, config_settings=None):  # pylint: disable=unused-argument
    known = email.message_from_string(pathlib.Path("PKG-INFO").read_text(encoding="utf-8"))
    made = pathlib.Path(folder) / f"{known['Name'].replace('-', '_')}-{known['Version']}.dist-info"
    made.mkdir()
    shutil.copy("PKG-INFO", made / "METADATA")
    return made.name
