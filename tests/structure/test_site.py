"""The documentation as a site: it builds without a warning, loads nothing from elsewhere, and shows what the pages say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(config, target):
    """Builds the site; returns the exit code and what MkDocs says."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    pytest.importorskip("material", reason="MkDocs is not installed: scripts/setup.sh --tests")
    target = tmp_path_factory.mktemp("site")
    code, told = build(ROOT / "mkdocs.yml", target)
    assert code == 0, told
    return target


def article(path):
    text = path.read_text(encoding="utf-8")
    return text[text.index("<article"):text.index("</article>")]


def test_sources_and_folders_that_pages_name_are_pages(site):
    assert 'href="../transport/link/link.h.html"' in article(site / "docs" / "design.html")
    assert "pragma" in article(site / "transport" / "link" / "link.h.html")
    assert 'href="docs/decisions/index.html"' in article(site / "index.html")
    decisions = [path.stem for path in (ROOT / "docs" / "decisions").glob("*.md")]
    listing = article(site / "docs" / "decisions" / "index.html")
    assert len(decisions) >= 18 and [name for name in decisions if f'href="{name}.html"' not in listing] == []


def test_nothing_is_loaded_from_elsewhere(site):
    loaded = {url for page in site.rglob("*.html")
              for url in re.findall(r'<(?:script|img|iframe)[^>]*\bsrc="(//[^"]*|https?:[^"]*)"|<link[^>]*\bhref="(?://|https?:)[^"]*"',
                                    page.read_text(encoding="utf-8"))}
    assert loaded == set()
    fonts = {url for style in site.rglob("*.css") for url in re.findall(r"url\((?:['\"])?(https?:[^)'\"]*)", style.read_text(encoding="utf-8"))}
    assert fonts == set()


def test_lists_tables_and_blocks_are_shown_as_other_readers_of_markdown_do(site):
    """Python-Markdown has rules of its own for lists, which docs/site/hooks.py evens out."""
    markdown_it = pytest.importorskip("markdown_it", reason="comes with rich: scripts/setup.sh --tests")
    reader = markdown_it.MarkdownIt("commonmark").enable("table")
    differences, pages = [], 0
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).with_suffix(".md")
        source = ROOT / (name.with_name("README.md") if name.name == "index.md" else name)
        if not source.exists():
            continue
        pages += 1
        expected = reader.render(source.read_text(encoding="utf-8"))
        for tag in ("li", "tr", "pre", "h2", "h3", "em", "strong"):
            shown, wanted = (len(re.findall(rf"<{tag}\b", text)) for text in (article(page), expected))
            if shown != wanted:
                differences.append(f"{name}: {shown} <{tag}> instead of {wanted}")
    assert pages > 60 and differences == []


def test_a_broken_link_and_a_lost_page_fail_the_build(site, tmp_path):
    """In a copy of what the site is made of."""
    for name in ("mkdocs.yml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# One\n" if name != "mkdocs.yml" else "")
    (tmp_path / "docs" / "site").mkdir(parents=True)
    (tmp_path / "docs" / "site" / "hooks.py").write_text((ROOT / "docs/site/hooks.py").read_text())
    (tmp_path / "docs" / "one.md").write_text("# One\n\n[a](nothing.md) [b](one.md#nowhere)\n")
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    settings = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[0].replace("extra_css: [docs/site/style.css]", "")
    settings = re.sub(r"\nwatch: .*", "", settings) + "\nnav:\n  - README.md\n  - CHANGELOG.md\n  - CONTRIBUTING.md\n  - docs/one.md\n"
    (tmp_path / "mkdocs.yml").write_text(settings)
    code, told = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert code == 1 and "Aborted with 3 warnings" in told
    assert "'nothing.md'" in told and "'one.md#nowhere'" in told and "docs/lost.md" in told
