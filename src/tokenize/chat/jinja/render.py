"""Renders chat templates with Jinja2, in the environment that transformers gives them. The module trifold_jinja.so holds
this text and calls compile_template once for each template, and render for each conversation; texts are JSON."""

import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils

# Text between {% generation %} and {% endgeneration %} is put between these marks, wherever the template then moves it.
# Both are lone surrogates, which no text from JSON in UTF-8 has.
BEGIN, END = "\ud8a1", "\ud8a2"

# The names under which messages have their reasoning. Templates read the first, those of gpt-oss the second.
REASONING = ("reasoning_content", "thinking", "reasoning")


class Generation(jinja2.ext.Extension):
    """The tag {% generation %}, which marks what the model writes. Its body has a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        return BEGIN + caller() + END


class Namespace(jinja2.utils.Namespace):
    """Attributes of namespaces may not begin with an underscore, behind which Python has its own."""

    def __init__(*given, **named):
        self, given = given[0], given[1:]
        attributes = dict(*given, **named)
        for name in attributes:
            Namespace.expect_plain(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace.expect_plain(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def expect_plain(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"the attribute {name!r} of a namespace begins with an underscore")


class Dict:
    """The function dict without the type of that name."""

    def __call__(self, *given, **named):
        return dict(*given, **named)

    def fromkeys(self, *given):
        return dict.fromkeys(*given)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals.update(raise_exception=raise_exception, dict=Dict(), namespace=Namespace)


def line_of(error):
    """The line of the template in which an error arose; 0 if it is not known."""
    line = getattr(error, "lineno", None) or 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def problem_of(error):
    return json.dumps({"problem": str(error) or type(error).__name__, "line": line_of(error)})


def compile_template(source):
    """The template and an empty text, or None and a problem."""
    try:
        return environment.from_string(source), ""
    except Exception as error:
        return None, problem_of(error)


def prepared(message):
    """A message as templates expect it: without fields of no value, and with its reasoning under every name."""
    message = {name: value for name, value in message.items() if value is not None}
    found = [message[name] for name in REASONING if name in message]
    if not found:
        return message
    return {"thinking": found[0], **message, "reasoning_content": found[0]}


def cut_marks(marked):
    """The text without marks, and the bytes [begin, end) of it that were between two."""
    pieces, spans, size, begin, depth = [], [], 0, 0, 0
    at = 0
    while at < len(marked):
        places = [place for place in (marked.find(BEGIN, at), marked.find(END, at)) if place >= 0]
        place = min(places, default=len(marked))
        piece = marked[at:place].encode()
        pieces.append(piece)
        size += len(piece)
        at = place + 1
        if place == len(marked):
            break
        if marked[place] == BEGIN:
            begin = size if depth == 0 else begin
            depth += 1
        else:
            depth -= 1
            if depth == 0 and size > begin:
                spans.append([begin, size])
    return b"".join(pieces).decode(), spans


def render(template, request):
    try:
        request = json.loads(request)
        today = request["today"]
        if today:
            day = datetime.datetime.strptime(today, "%Y-%m-%d")
        else:
            day = datetime.datetime.now()
        values = {"strftime_now": day.strftime, **request["variables"]}
        values.setdefault("tools", None)
        values.setdefault("documents", None)
        marked = template.render(messages=[prepared(message) for message in request["messages"]],
                                 add_generation_prompt=request["add_generation_prompt"], **values)
        text, spans = cut_marks(marked)
        return json.dumps({"text": text, "spans": spans})
    except Exception as error:
        return problem_of(error)


VERSIONS = f"Jinja2 {jinja2.__version__}, Python {sys.version.split()[0]}"
