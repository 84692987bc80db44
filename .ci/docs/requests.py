"""Writes what `docs/delivery/http.md` says of each request, from `docs/openapi.yaml`.

    python .ci/docs/requests.py            writes the page
    python .ci/docs/requests.py --check    ends with 1 if the page is not as that file is

The part between the two marks is written; what is around it is by hand.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "delivery/http.md"
BEGIN, END = "<!-- made by .ci/docs/requests.py: begin -->", "<!-- made by .ci/docs/requests.py: end -->"
_METHODS = ("get", "post", "put", "patch", "delete")
_MANY = 5  # an error that so many requests share is described once
_RECORD = "#/components/schemas/Record"
_PLAIN = {"string", "integer", "number", "boolean", "null"}  # types that the page leaves to openapi.yaml


class _Requests:
    def __init__(self, file: Mapping[str, Any]) -> None:
        self._file = file
        answers = [
            (status, answer["$ref"])
            for item in file["paths"].values()
            for method in _METHODS
            for status, answer in item.get(method, {}).get("responses", {}).items()
            if "$ref" in answer and int(status) >= 400
        ]
        self._shared = {answer for answer, count in Counter(answers).items() if count >= _MANY}
        self._sent: list[str] = []  # schemas of requests, but for the record, which has a page of its own
        self._told: dict[str, str] = {}  # parameters, and bodies with answers: the first request that has them

    def lines(self) -> Iterator[str]:
        yield "## Errors of many requests\n\nopenapi.yaml names them for each request.\n"
        yield from self._answers((status, {"$ref": name}) for status, name in sorted(self._shared))
        yield ""
        for tag in self._file["tags"]:
            yield f"## {tag['name']}\n\n{tag['description']}\n"
            for path, item in self._file["paths"].items():
                for method in _METHODS:
                    if tag["name"] in item.get(method, {}).get("tags", ()):
                        yield from self._operation(f"{method.upper()} {path}", item, item[method])
        yield "## Bodies\n\nThe JSON of requests; members in bold are required."
        yield "[openapi.yaml](../openapi.yaml) has all types, and the JSON of answers."
        yield "A time in a request is RFC 3339 with a zone, or milliseconds since 1970; in an answer it is in UTC.\n"
        for name in dict.fromkeys(self._sent):
            yield from self._members(name, self._file["components"]["schemas"][name])

    def _operation(self, name: str, item: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
        yield f"### {name}\n\n{operation['summary']}. {_right(operation)}\n"
        if "description" in operation:
            yield f"{operation['description'].strip()}\n"
        parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
        before = dict[str, list[str]]()
        for given in parameters:
            each = self._of(given)
            place = "" if each["in"] in ("query", "path") else f", in the {each['in']}"
            other = self._told.setdefault(str(each), name)
            if other == name:
                yield _item(f"`{each['name']}`{place}", self._value(each["schema"]), each.get("description"))
            elif each["in"] != "path":
                before.setdefault(other, []).append(f"`{each['name']}`")
        for other, names in before.items():
            yield f"- {', '.join(names)}: as of {_link(other)}"
        if parameters:
            yield ""
        answers = operation["responses"]
        said = str((operation.get("requestBody"), answers))
        if "requestBody" in operation and self._told.setdefault(said, name) != name:
            yield f"Body and answers are those of {_link(self._told[said])}.\n"
            return
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            shown = "" if kind == "application/json" else f", as `{kind}`"
            yield f"Body{shown}: {self._body(content['schema'])}.\n"
            if "properties" in self._of(content["schema"]) and content["schema"]["$ref"] != _RECORD:
                self._sent.append(content["schema"]["$ref"].rpartition("/")[2])
        if self._told.setdefault(said, name) != name:
            yield f"Answers are those of {_link(self._told[said])}.\n"
            return
        if parameters and "requestBody" not in operation:
            yield "Answers:\n"
        kept = [(status, given) for status, given in answers.items() if (status, given.get("$ref")) not in self._shared]
        yield from self._answers(kept)
        yield ""

    def _answers(self, answers: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
        for status, given in answers:
            answer = self._of(given)
            kinds = [f"`{kind}`" for kind in answer["content"] if kind != "application/json"]
            headers = [f"`{each}`" for each in answer.get("headers", {})]
            shown = ", ".join(filter(None, (f"**{status}**", " or ".join(kinds), ", ".join(headers))))
            yield f"- {shown}: {' '.join(answer['description'].split())}"

    def _members(self, name: str, schema: Mapping[str, Any]) -> Iterator[str]:
        yield f"### {name}\n"
        if "description" in schema:
            yield f"{schema['description']}\n"
        members = schema["properties"]
        alone = list[str]()
        for member, given in members.items():
            value = self._value({key: part for key, part in given.items() if key != "description"})
            shown = f"**`{member}`**" if member in schema.get("required", ()) else f"`{member}`"
            if value or "description" in given:
                yield _item(shown, value, given.get("description"))
            else:
                alone.append(shown)
        if alone:
            yield f"- {', '.join(alone)}"
        yield ""

    def _value(self, schema: Mapping[str, Any]) -> str:
        default = schema.get("default")
        return "; ".join(filter(None, (self._type(schema), f"by default `{default}`" if default else "")))

    def _body(self, schema: Mapping[str, Any]) -> str:
        return schema.get("description", "").replace("#record", "records.md") or self._type(schema)

    def _type(self, schema: Mapping[str, Any]) -> str:
        """A schema in a few words; one with members as a link to them."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            named = self._file["components"]["schemas"][name]
            if "properties" in named:
                return "[the record](records.md)" if schema["$ref"] == _RECORD else f"[{name}](#{name.lower()})"
            is_time = named.get("description", "").startswith("RFC 3339")
            return "a time" if is_time else self._type(named)
        if several := schema.get("oneOf", schema.get("anyOf")):
            return " or ".join(filter(None, map(self._type, several)))
        if "enum" in schema or "const" in schema:
            return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]) if each)
        if "prefixItems" in schema:
            return f"[{', '.join(self._type(each) for each in schema['prefixItems'])}]"
        if schema.get("type") == "array":
            return f"a list of {self._type(schema['items'])}".removesuffix(" of ")
        kinds = schema.get("type", schema.get("description", ""))
        text = " or ".join(each for each in ([kinds] if isinstance(kinds, str) else kinds) if each not in _PLAIN)
        if "minimum" in schema:
            low = f"{schema['minimum']:,}"
            text += f"{low} to {schema['maximum']:,}" if "maximum" in schema else f"from {low}"
        return text

    def _of(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a reference names."""
        found: Any = self._file if "$ref" in given else given
        for part in given["$ref"].removeprefix("#/").split("/") if "$ref" in given else ():
            found = found[part]
        return found  # type: ignore[no-any-return]


def _right(operation: Mapping[str, Any]) -> str:
    right = operation.get("x-right")
    return f"Right: `{right}`." if right else "It needs no token."


def _link(name: str) -> str:
    return f"[`{name}`](#{re.sub(r'[^a-z -]', '', name.lower()).replace(' ', '-')})"


def _item(start: str, value: str, text: str | None) -> str:
    said = ". ".join(filter(None, (value, " ".join((text or "").split()))))
    return f"- {start}: {said}" if said else f"- {start}"


def page() -> str:
    """The page as it has to be."""
    file = yaml.safe_load((DOCS / "openapi.yaml").read_text("utf-8"))
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n" + "\n".join(_Requests(file).lines()) + f"\n{END}{after}"


def main() -> None:
    """Write the page, or check it."""
    if "--check" not in sys.argv:
        PAGE.write_text(page(), "utf-8")
    elif PAGE.read_text("utf-8") != page():
        sys.exit(f"{PAGE.name} is not as docs/openapi.yaml is: run make docs, or {sys.executable} {__file__}")


if __name__ == "__main__":
    main()
