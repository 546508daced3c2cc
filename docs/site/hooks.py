"""Hooks of mkdocs.yml: the site has the repository's layout, so that the links of a page work in both.

Pages are README.md, CHANGELOG.md, CONTRIBUTING.md, all of docs/, and every page that one of these links to. A source file or a folder
that a page links to becomes a page, too.
"""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
FIRST_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
AS_THEY_ARE = (".png", ".svg", ".json", ".css")
LANGUAGES = {".h": "cpp", ".cc": "cpp", ".c": "c", ".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2`*$", re.M | re.S)
ITEM = re.compile(r"([*-]|\d+\.) ")
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config):
    """Puts the files that a path with * matches into the navigation."""
    config.nav = _with_matches(config.nav)
    return config


def on_files(files, config):
    """Takes the repository's files in place of those of docs/ alone."""
    made = {}
    waiting = [*FIRST_PAGES, *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]
    in_docs, in_nav = set(waiting), set(_leaves(config.nav))
    while waiting:
        name = waiting.pop()
        if name in made:
            continue
        made[name] = File(name, str(ROOT), config.site_dir, config.use_directory_urls)
        if name not in in_docs and name not in in_nav:
            made[name].inclusion = InclusionLevel.NOT_IN_NAV
        for target in _targets(name, (ROOT / name).read_text(encoding="utf-8")):
            page = _page_of(target)
            if page == target and target.endswith(".md"):
                waiting.append(target)
            elif page == target:
                made[target] = File(target, str(ROOT), config.site_dir, config.use_directory_urls)
            elif (ROOT / page).is_file():  # a folder's README.md
                waiting.append(page)
            elif page not in made:
                made[page] = File.generated(config, page, content=_text_of(target), inclusion=InclusionLevel.NOT_IN_NAV)
    for css in config.extra_css:
        made[css] = File(css, str(ROOT), config.site_dir, config.use_directory_urls)
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theme, *made.values()])


def on_page_markdown(markdown, page, config, files):
    """Links to a source file or a folder lead to its page; lists are nested as on every other reader of Markdown."""

    if page.file.generated_by:
        return markdown

    def link(match):
        target = _target(page.file.src_uri, match[1])
        if target is None or _page_of(target) == target:
            return match[0]
        return f"]({os.path.relpath(_page_of(target), os.path.dirname(page.file.src_uri))}{match[2] or ''})"

    return _outside_fences(markdown, lambda text: _with_lists(LINK.sub(link, text)))


def _with_lists(text):
    """Python-Markdown wants four columns for what belongs to an item of a list, where the pages have two or three, and takes an item
    after an indented paragraph for a part of that paragraph."""
    lines, inside = [], False
    for line in text.split("\n"):
        if inside and ITEM.match(line):
            lines.append("")
        if line.startswith("  ") and line.strip():
            inside = inside or lines[-1:] == [""]
            if not line.startswith("    "):
                line = "    " + line.lstrip()
        else:
            inside = False
        lines.append(line)
    return "\n".join(lines)


def _outside_fences(text, change):
    parts, at = [], 0
    for fence in FENCED.finditer(text):
        parts += [change(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(text[at:])])


def _targets(name, text):
    """The files and folders of the repository that a page links to, from the root."""
    found = (_target(name, match[1]) for match in LINK.finditer(FENCED.sub("", text)))
    return [target for target in found if target]


def _target(name, link):
    if re.match(r"[a-z]+:", link):
        return None
    target = os.path.normpath(os.path.join(os.path.dirname(name), link))
    return target if (ROOT / target).exists() and not target.startswith("..") else None


def _page_of(target):
    """The page of the site that shows a file or a folder."""
    path = ROOT / target
    if path.is_dir():
        return f"{target}/README.md"
    return target if path.suffix in (".md", *AS_THEY_ARE) else f"{target}.md"


def _text_of(target):
    """Markdown that shows a source file, or lists a folder that says nothing of itself."""
    path = ROOT / target
    head = f"---\nsearch:\n  exclude: true\n---\n# {target}\n\n"
    if path.is_dir():
        pages = sorted(path.glob("*.md"))
        return head + "".join(f"* [{_title(page)}]({page.name})\n" for page in pages)
    text = path.read_text(encoding="utf-8")
    fence = "`" * (max(map(len, re.findall(r"`+", text)), default=0) + 3)
    return f"{head}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"


def _title(page):
    return page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")


def _leaves(nav):
    if isinstance(nav, str):
        return [nav]
    return [leaf for part in (nav.values() if isinstance(nav, dict) else nav) for leaf in _leaves(part)]


def _with_matches(nav):
    if isinstance(nav, dict):
        return {title: _with_matches(part) for title, part in nav.items()}
    if isinstance(nav, list):
        return [_with_matches(part) for part in nav]
    return [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(nav))] if "*" in nav else nav
