"""Packages are found by the folders of their metadata."""

import pytest

from hccl_like import _packages


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Two folders of sys.path."""
    found = [tmp_path / "first", tmp_path / "second"]
    for folder in found:
        folder.mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path / "missing"), *map(str, found)])
    return found


def package(folder, name, entry_points=None, version="1.0"):
    metadata = folder / name
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: some-name\nVersion: {version}\n")
    if entry_points is not None:
        (metadata / "entry_points.txt").write_text(entry_points)


@pytest.mark.parametrize("metadata", ["Some_Name-1.0.dist-info", "some.name-1.0.dist-info", "some_name.egg-info"])
def test_a_name_may_be_written_in_any_way(folders, metadata):
    package(folders[1], metadata)
    for name in ("some-name", "some_name", "Some.Name"):
        assert _packages.find(name) is not None
    assert _packages.find("some") is None


def test_the_first_of_a_name_is_found(folders):
    package(folders[0], "some_name-2.0.dist-info", version="2.0")
    package(folders[1], "some_name-1.0.dist-info", "[hccl_like.devices]\na = b:c\n")
    assert _packages.find("some-name").version == "2.0"
    assert _packages.with_entry_points("hccl_like.") == []


def test_entry_points_are_found_by_the_beginning_of_their_group(folders):
    package(folders[0], "one-1.0.dist-info", "[console_scripts]\na = hccl_like.b:c\n")
    package(folders[1], "two-1.0.dist-info", "[console_scripts]\na = b:c\n\n[hccl_like.devices]\nnpu = two:plugin\n")
    (found,) = _packages.with_entry_points("hccl_like.")
    assert {(entry.group, entry.name) for entry in found.entry_points} == {("console_scripts", "a"), ("hccl_like.devices", "npu")}


def test_a_folder_that_is_added_is_looked_at(folders, monkeypatch, tmp_path):
    assert _packages.with_entry_points("hccl_like.") == []
    package(tmp_path, "two-1.0.dist-info", "[hccl_like.devices]\nnpu = two:plugin\n")
    monkeypatch.setattr("sys.path", [*map(str, folders), str(tmp_path)])
    assert len(_packages.with_entry_points("hccl_like.")) == 1
