"""Conversations for chat_templates_test.py: (name, keyword arguments of apply_chat_template)."""
import copy

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Current weather <of> a \"city\" & more", "parameters": {
        "type": "object", "properties": {
            "city": {"type": "string", "description": "Name of the city, e.g. Zürich"}, "unit": {"type": "string", "enum": ["C", "F"]},
            "days": {"type": "array", "items": {"type": "integer"}, "description": "which days"},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat"]}},
        "required": ["city"]}, "return": {"type": "string", "description": "text"}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]
U, A, S = "user", "assistant", "system"


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, identity="call12345"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_talk(arguments, content, result=None):
    result = result if result is not None else "{\"temperature\": 21.5}"
    return [say(S, "Be brief."), say(U, "Weather in Zürich?"), say(A, content, tool_calls=[call("get_weather", arguments)]),
            say("tool", result, name="get_weather", tool_call_id="call12345"), say(A, "21.5 degrees."), say(U, "And now?")]


def conversations():
    basic = [say(S, "You are helpful."), say(U, "Hi!"), say(A, "Hello, how are you?"), say(U, "  Fine \n")]
    parts = [say(U, [{"type": "text", "text": "What is this? "}, {"type": "image"}, {"type": "text", "text": "And that?"}]), say(A, [{"type": "text", "text": "A cat."}])]
    thinking = [say(U, "2+2?"), say(A, "<think>\nEasy.\n</think>\n\n4"), say(U, "3+3?"), say(A, "6", reasoning_content="Hm, 6."), say(U, "4+4?")]
    two_calls = tool_talk({"city": "Zürich", "days": [1, 2], "deep": {"a": None, "b": [True, 1.5]}}, None)
    two_calls[2]["tool_calls"].append(call("now", {}, "call67890"))
    two_calls.insert(4, say("tool", "12:00", name="now", tool_call_id="call67890"))
    yield "basic", dict(messages=basic)
    yield "basic with prompt", dict(messages=basic, add_generation_prompt=True)
    yield "no system", dict(messages=basic[1:], add_generation_prompt=True)
    yield "ends with assistant", dict(messages=basic[:3])
    yield "empty", dict(messages=[])
    yield "system only", dict(messages=basic[:1], add_generation_prompt=True)
    yield "assistant first", dict(messages=[say(A, "I begin."), say(U, "Oh.")], add_generation_prompt=True)
    yield "two of one role", dict(messages=[say(U, "a"), say(U, "b"), say(A, "c"), say(A, "d")])
    yield "unknown role", dict(messages=[say(U, "a"), say("critic", "b")])
    yield "special tokens", dict(messages=[say(U, "<|im_end|>\n<|im_start|>system [INST] </s> <|eot_id|> {{ x }} {% if %}"), say(A, "<think>"), say(U, "</think> a </think> b")], add_generation_prompt=True)
    yield "unicode", dict(messages=[say(S, "日本語で。"), say(U, "naïve ßtraße 👩‍👩‍👧 \u200b\u00a0e\u0301\u2028x"), say(A, "مرحبا\r\nשלום\t"), say(U, "\u3000")], add_generation_prompt=True)
    yield "empty texts", dict(messages=[say(S, ""), say(U, ""), say(A, ""), say(U, " ")], add_generation_prompt=True)
    yield "content null", dict(messages=[say(U, None), say(A, None), say(U, "x")])
    yield "content parts", dict(messages=parts, add_generation_prompt=True)
    yield "system parts", dict(messages=[say(S, [{"type": "text", "text": "Be good."}]), *parts])
    yield "content number", dict(messages=[say(U, 5), say(A, 1.5), say(U, True)])
    yield "no content", dict(messages=[{"role": U}, {"role": A}])
    yield "no role", dict(messages=[{"content": "x"}])
    yield "tools offered", dict(messages=basic, tools=TOOLS, add_generation_prompt=True)
    yield "tools, no system", dict(messages=basic[1:], tools=TOOLS, add_generation_prompt=True)
    yield "tool call", dict(messages=tool_talk({"city": "Zürich"}, ""), tools=TOOLS, add_generation_prompt=True)
    yield "tool call, arguments as text", dict(messages=tool_talk("{\"city\": \"Zürich\"}", "Let me see."), tools=TOOLS, add_generation_prompt=True)
    yield "tool call, null content", dict(messages=tool_talk({"city": "Zürich"}, None), tools=TOOLS)
    every = ("name", "tool_calls", "tool_call_id", "reasoning_content", "thinking", "content")
    table = [dict.fromkeys(every) | message for message in tool_talk({"city": "Zürich", "day": None}, None)]
    yield "a table's chat: all keys in all messages", dict(messages=table, tools=TOOLS, add_generation_prompt=True)
    yield "reasoning null beside another name", dict(messages=[say(U, "a"), say(A, "b", reasoning_content=None, reasoning="r"), say(U, "c")])
    yield "null inside parts", dict(messages=[say(U, [{"type": "text", "text": "x", "image": None}])])
    yield "two tool calls", dict(messages=two_calls, tools=TOOLS, add_generation_prompt=True)
    yield "tool call, not offered", dict(messages=two_calls, add_generation_prompt=True)
    yield "tool result as object", dict(messages=tool_talk({"city": "Bern"}, "", {"temperature": 3, "text": "a \"b\""}), tools=TOOLS)
    yield "tool result last", dict(messages=copy.deepcopy(two_calls)[:5], tools=TOOLS, add_generation_prompt=True)
    for flag in (True, False, None):
        yield f"thinking {flag}", dict(messages=thinking, add_generation_prompt=True, enable_thinking=flag)
    yield "thinking absent", dict(messages=thinking, add_generation_prompt=True)
    yield "thinking by another name", dict(messages=[say(U, "a"), say(A, "b", reasoning="r"), say(U, "c"), say(A, "d", thinking="s")], reasoning_effort="high")
    yield "documents", dict(messages=basic, documents=[{"title": "T", "text": "Some text."}, {"title": "U", "text": "More", "n": 3}], add_generation_prompt=True)
    yield "knobs", dict(messages=basic, add_generation_prompt=True, knobs={"citation_mode": "fast", "response_format": "json_object"}, citation_mode="fast", date_string="1 Jan 2026", response_format="json")
    yield "safety", dict(messages=basic, tools=TOOLS, safety_mode="STRICT", available_tools=TOOLS, custom_tools=TOOLS, tools_in_user_message=False, builtin_tools=["brave_search"])


# Arguments that templates of 2025 and 2026 ask for, with the values that they tell apart.
SWITCHES = dict(
    enable_thinking=(True, False), thinking=(True, False, "on", "off", "high"), reasoning=(True, False), reasoning_effort=("none", "minimal", "low", "medium", "high", "max", "xhigh", 0.2, 7),
    thinking_effort=("low", "medium", "high", "max"), reasoning_strength=("low", "high", 1), thinking_mode=("enabled", "disabled", "adaptive", "chat", "auto"), thinking_option=("on", "off", "auto"),
    reasoning_mode=("/think", "/no_think"), preserve_thinking=(True, False), preserved_thinking=(True, False), truncate_history_thinking=(True, False), keep_past_thinking=(True, False),
    clear_thinking=(True, False), drop_thinking=(True, False), keep_reasoning=(True, False), skip_think=(True, False), skip_thinking=(True, False), include_thinking=(True, False),
    add_thoughts=(True, False), thinking_budget=(-1, 0, 512, 1000, 20000), think_render_option=("all", "lastthink", "none"), low_effort=(True, False), medium_effort=(True, False), add_vision_id=(True,),
    model_identity=("You are a test.",), current_date=("2026-03-05",), knowledge_cutoff=("2025-06",), builtin_tools=(["browser", "python"], []), response_format=({"type": "json_object"}, "json_object"),
    response_schema=({"type": "object", "properties": {"a": {"type": "string"}}},), tool_choice=("auto", "none", "required"), default_system_prompt=(True, False), system_prompt=("Be a test.",),
    use_json_tooldef=(True, False), render_assistant_messages_raw=(True, False), controls=({"length": "short"},), grounding=("enabled", "disabled"), enable_citations=(True, False),
    tool_namespace_descriptions=({"functions": "Those of the test."},), custom_instructions=("Be a test.",), is_training=(True, False), training_prompt=(True, False), developer_preamble=("Be a test.",))
SCHEMA = {"type": "object", "$defs": {"leg": {"type": "object", "properties": {"to": {"type": "string"}}}}, "required": ["legs"], "additionalProperties": False, "properties": {
    "legs": {"type": "array", "description": "stops\nin order", "minItems": 1, "items": {"$ref": "#/$defs/leg"}}, "class": {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}], "default": None},
    "money": {"type": ["number", "null"], "minimum": 0, "maximum": 1e6, "default": 12.5, "nullable": True}, "seats": {"oneOf": [{"type": "integer"}, {"type": "string", "description": "a range"}], "default": 1},
    "options": {"type": "object", "additionalProperties": {"type": "boolean"}, "description": "<more> & 'more'"}, "flag": {"type": "boolean", "default": False}, "bare": {}, "list": {"type": "array"},
    "deep": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number", "examples": [1, 2.5]}}, "required": ["x"]}}}}}}
MORE_TOOLS = [*TOOLS, {"type": "function", "function": {"name": "plan_trip", "description": "Plans a trip.\n\nIn two paragraphs.", "parameters": SCHEMA, "strict": True}}, {"type": "function", "function": {"name": "bare"}}]


def agent_talk():
    """Reasoning between calls: of calls in one turn, results that are lists, and texts beside calls."""
    trip = call("plan_trip", {"legs": [{"to": "Zürich"}, {"to": "</tool_call>"}], "class": None, "money": 1e-7, "flag": True, "text": "two\nlines"}, "functions.plan_trip:0")
    parts = [{"type": "text", "text": "booked"}, {"type": "text", "text": ", paid"}]
    return [say(S, "Be brief."), say(U, "A trip, please."), say(A, "First the weather.", reasoning_content="It rains?", tool_calls=[call("get_weather", {"city": "Zürich"}, "functions.get_weather:1"), trip]),
            say("tool", "rain", name="get_weather", tool_call_id="functions.get_weather:1"), say("tool", parts, name="plan_trip", tool_call_id="functions.plan_trip:0"),
            say(A, "", reasoning_content="\nNow the time.\n", tool_calls=[call("now", {}, "functions.now:2")]), say("tool", "", name="now", tool_call_id="functions.now:2"),
            say(A, "<think>so</think>It is booked.", reasoning_content="Done."), say(U, "Thanks /no_think"), say(A, "", reasoning_content="Polite."), say(U, [{"type": "text", "text": "And back? /think"}])]


def agents():
    """(name, arguments, word): conversations for templates of reasoning and tools; a word: for those alone that have it."""
    talk = agent_talk()
    yield "agent", dict(messages=talk, tools=MORE_TOOLS, add_generation_prompt=True), ""
    yield "agent, nothing offered", dict(messages=talk, add_generation_prompt=True), ""
    yield "agent in the middle of its calls", dict(messages=talk[:7], tools=MORE_TOOLS, add_generation_prompt=True), ""
    yield "agent, ends with a call", dict(messages=talk[:6], tools=MORE_TOOLS), ""
    yield "agent, ends with its answer", dict(messages=talk[:8], tools=MORE_TOOLS), ""
    yield "bare functions offered", dict(messages=talk[:2], tools=[tool["function"] for tool in MORE_TOOLS], add_generation_prompt=True), ""
    yield "developer", dict(messages=[say("developer", "Be a test."), *talk[1:]], tools=MORE_TOOLS, add_generation_prompt=True), ""
    yield "system in the middle", dict(messages=[*talk[:8], say(S, "Be kind."), *talk[8:]], tools=MORE_TOOLS, add_generation_prompt=True), ""
    for word, values in SWITCHES.items():
        for value in values:
            yield f"agent, {word} {value}", {"messages": talk, "tools": MORE_TOOLS, "add_generation_prompt": True, word: value}, word
            yield f"plain, {word} {value}", {"messages": talk[:2], "add_generation_prompt": True, word: value}, word
