"""The rules about the tree, one test each, and proof that they can fail."""

import os
import subprocess

import check
import pytest


@pytest.mark.parametrize("rule", check.CHECKS, ids=lambda rule: rule.__name__)
def test_rule_holds(rule):
    assert list(rule()) == []


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes files into an empty tree that the checks then look at."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    monkeypatch.setattr(check, "LONG_FILES", {})

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_an_include_to_the_right_is_found(tree):
    tree(core__a_dot_h='#pragma once\n#include "transport/wire/wire.h"\n')
    assert list(check.includes_point_left()) == ["core/a.h:2: core/ must not include transport/wire/wire.h"]


def test_an_include_that_is_not_rooted_is_found(tree):
    tree(core__a_dot_cc='#include "a.h"\n')
    assert list(check.includes_point_left()) == ["core/a.cc:1: name a.h from the root of the repository"]


def test_torch_in_a_lower_layer_is_found(tree):
    tree(device__a_dot_cc="#include <c10/core/Device.h>\n", process_group__b_dot_cc="#include <torch/torch.h>\n")
    found = list(check.torch_begins_at_process_group())
    assert found == ["device/a.cc:1: c10/core/Device.h belongs to process_group/ and python/ only"]


def test_a_vendor_that_looks_inside_is_found(tree):
    tree(simulator__a_dot_cc='#include "device/plugin.h"\n#include "core/base/error.h"\n')
    assert len(list(check.vendors_see_the_tables_only())) == 1


def test_a_vendor_name_counts_in_code_and_not_in_comments(tree):
    tree(core__a_dot_cc='// like CUDA\n/* cuda\n cuda */ int x;\nauto s = "cuda//";\n')
    assert [found.split(":")[1] for found in check.no_vendor_is_named_beside_the_plugins()] == ["4"]


def test_a_vendor_may_be_named_by_his_plugin_alone(tree):
    code = 'auto s = "npu";\n'
    tree(device__cuda__a_dot_cc=code, python__a_dot_cc=code, process_group__a_dot_cc=code, device__a_dot_cc=code)
    found = {offence.split(":")[0] for offence in check.no_vendor_is_named_beside_the_plugins()}
    assert found == {"process_group/a.cc", "device/a.cc"}


def test_a_broken_link_is_found(tree):
    tree(docs__a_dot_md="# One\n[x](b.md) [y](#one) [z](#two) [w](a.md#one)\n")
    assert [found.split(": ")[1] for found in check.links_lead_somewhere()] == [
        "b.md does not exist",
        "a.md has no heading 'two'",
    ]


def test_a_long_file_is_found(tree):
    tree(core__a_dot_cc="\n" * 401)
    assert [found.split(" ")[0] for found in check.files_are_short()] == ["core/a.cc:401:"]


@pytest.mark.parametrize(
    "lines, offences",
    [
        (["S.T | 2026-01-01 | wrong sum"], []),
        (["S.T | 2025-12-31 | wrong sum"], ["S.T is listed since 2025-12-31"]),
        (["S.T | 2026-01-01"], ["write 'test | year-month-day | what was seen'"]),
        ([f"S.T{n} | 2026-01-01 | slow" for n in range(4)], ["4 tests are listed, and 3 may be"]),
    ],
)
def test_a_list_of_unstable_tests_that_is_bad_or_old_is_found(tree, tmp_path, lines, offences):
    tree(tests__unstable_dot_txt="\n".join(lines) + "\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    when = {"GIT_COMMITTER_DATE": "2026-01-31T12:00:00+00:00", "PATH": os.environ["PATH"]}
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "newest"], check=True, env=when)
    found = list(check.unstable_tests_are_few_and_recent())
    assert len(found) == len(offences)
    assert all(words in sentence for words, sentence in zip(offences, found))


def test_folders_that_include_each_other_are_found(tree):
    tree(core__a__x_dot_h='#include "core/b/y.h"\n', core__b__y_dot_h='#include "core/c/z.h"\n',
         core__c__z_dot_h='#include "core/a/x.h"\n', core__c__z_test_dot_cc='#include "core/b/y.h"\n')
    assert list(check.folders_include_each_other_one_way()) == [
        "core/c/z.h:1: core/a -> core/b -> core/c -> core/a is a circle"]


def test_a_folder_without_a_readme_and_one_with_too_many_files_are_found(tree):
    tree(core__a__x_dot_h="", core__b__README_dot_md="", **{f"core__b__f{i}_dot_h": "" for i in range(35)})
    assert list(check.folders_say_what_they_are_for_and_are_small()) == [
        "core/a: no README.md", "core/b: 36 files, more than 35"]


def test_a_function_that_has_moved_is_missed_where_one_call_is_followed(tree):
    tree(core__a_dot_cc="void begin() {}\n// end()\n",
         docs__design_dot_md="1. [core/a.cc](../core/a.cc): `begin` and `end`.\n3. [core/a.cc](../core/a.cc): `begin`.\n")
    assert list(check.one_call_can_be_followed()) == [
        "docs/design.md:1: core/a.cc has no end()", "docs/design.md:2: step 3 after step 1; a list has at most 8"]
