# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.yaml as a judge of real answers: what it does not name is a fault, and so is what it names and nobody ever sends.

Only the keywords that the document uses; another one is refused, so that no rule goes unlooked at.
"""

import re
import sys

try:
    import yaml
except ImportError:  # another Python than the distribution's, whose package it is
    sys.path.append("/usr/lib/python3/dist-packages")
    import yaml

KEYWORDS = {"type", "required", "properties", "items", "enum", "const", "pattern", "format", "minimum", "maximum", "minLength",
            "maxLength", "maxItems", "oneOf", "additionalProperties", "description", "default", "contentEncoding", "$ref"}
TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list, "null": type(None)}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
METHODS = ("get", "head", "post", "put", "delete")


class Contract:
    def __init__(self, text):
        self.doc = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.problems = []
        self.seen = set()  # places of members that came
        self.answered = set()  # (method, path, status as the document has it)

    # ---- the document ----
    def ref(self, node):
        """The node behind a $ref, and its name (None without one)."""
        if "$ref" not in node:
            return node, None
        *_, group, name = node["$ref"].split("/")
        return self.doc["components"][group][name], name

    def operations(self):
        for path, item in self.doc["paths"].items():
            for method in METHODS:
                if method in item:
                    yield method.upper(), path, item[method]

    def parameters(self, path, method):
        item = self.doc["paths"][path]
        found = [self.ref(p)[0] for p in item.get("parameters", []) + item[method.lower()].get("parameters", [])]
        return {p["name"]: p for p in found if p["in"] == "query"}

    def response(self, method, path, status):
        """(the key it stands under, the response) or None."""
        responses = self.doc["paths"][path][method.lower()]["responses"]
        key = str(status) if str(status) in responses else "default" if status >= 400 and "default" in responses else None
        return key and (key, self.ref(responses[key])[0])

    # ---- judging ----
    def fault(self, place, what):
        self.problems.append(f"{place}: {what}")

    def answer(self, method, path, status, content_type, json_body):
        found = self.response(method, path, status)
        where = f"{method} {path} {status}"
        if not found:
            return self.fault(where, "the status is not in the document")
        key, response = found
        self.answered.add((method, path, key))
        content = response.get("content", {})
        kind = (content_type or "").split(";")[0]
        if method == "HEAD" or not content and not kind:
            return None
        if kind not in content:
            return self.fault(where, f"content type {kind!r}, the document has {sorted(content)}")
        if "schema" in content[kind]:
            self.check(content[kind]["schema"], json_body, where)
        return content[kind]

    def check(self, node, value, place):
        schema, name = self.ref(node)
        place = name or place
        unknown = [k for k in schema if k not in KEYWORDS and not k.startswith("x-")]
        if unknown:
            self.fault(place, f"the document uses {unknown}, which this judge does not know")
        if "oneOf" in schema:
            return self.check_one_of(schema["oneOf"], value, place)
        if not self.check_type(schema, value, place):
            return None
        if "enum" in schema and value not in schema["enum"]:
            self.fault(place, f"{value!r} is none of {schema['enum']}")
        if "const" in schema and value != schema["const"]:
            self.fault(place, f"{value!r} is not {schema['const']!r}")
        if isinstance(value, str):
            self.check_text(schema, value, place)
        elif isinstance(value, dict):
            self.check_object(schema, value, place)
        elif isinstance(value, list):
            for item in value:
                self.check(schema.get("items", {}), item, place + "[]")
        elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            self.fault(place, f"{value} is out of its bounds")

    def check_type(self, schema, value, place):
        types = schema.get("type", [])
        types = types if isinstance(types, list) else [types]
        if types and not any(isinstance(value, TYPES[t]) and (t == "boolean") == isinstance(value, bool) for t in types):
            self.fault(place, f"{value!r} is not of type {'/'.join(types)}")
            return False
        return True

    def check_text(self, schema, value, place):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            self.fault(place, f"{value!r} does not fit {schema['pattern']}")
        if schema.get("format") == "date-time" and not TIME.fullmatch(value):
            self.fault(place, f"{value!r} is no time")
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            self.fault(place, f"a text of {len(value)} characters")

    def check_object(self, schema, value, place):
        properties = schema.get("properties", {})
        for key in schema.get("required", []):
            if key not in value:
                self.fault(f"{place}.{key}", "is missing")
            if key not in properties:
                self.fault(f"{place}.{key}", "is required, but not described")
        for key, member in value.items():
            if key not in properties:
                self.fault(f"{place}.{key}", "is not in the document")
                continue
            self.seen.add(f"{place}.{key}")
            self.check(properties[key], member, f"{place}.{key}")

    def check_one_of(self, choices, value, place):
        results = []
        for number, choice in enumerate(choices):
            trial = Contract.__new__(Contract)
            trial.doc, trial.problems, trial.seen = self.doc, [], set()
            trial.check(choice, value, f"{place}|{number}")
            if not trial.problems:
                self.seen |= trial.seen
                return
            results += trial.problems
        self.fault(place, f"fits none of its forms: {results}")

    # ---- what never came ----
    def places(self, node, place, found):
        schema, name = self.ref(node)
        place = name or place
        for number, choice in enumerate(schema.get("oneOf", [])):
            self.places(choice, f"{place}|{number}", found)
        for key, member in schema.get("properties", {}).items():
            if f"{place}.{key}" not in found:
                found.add(f"{place}.{key}")
                self.places(member, f"{place}.{key}", found)
        if "items" in schema:
            self.places(schema["items"], place + "[]", found)
        return found

    def described(self):
        """Places of all members of all answers."""
        found = set()
        for method, path, operation in self.operations():
            for key, response in operation["responses"].items():
                for content in self.ref(response)[0].get("content", {}).values():
                    for schema in [content["schema"]] if "schema" in content else content.get("x-berth-events", {}).values():
                        self.places(schema, f"{method} {path} {key}", found)
        return found

    def statuses(self):
        return {(method, path, key) for method, path, operation in self.operations() for key in operation["responses"]}
