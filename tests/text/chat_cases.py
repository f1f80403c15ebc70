"""Small templates for chat_templates_test.py, each rendered by Jinja and by magister and compared byte for byte. A case is a
template, or (template, variables). Where Jinja throws, magister must throw."""
import random

V = {
    "s": "Hello, Wörld!  ", "n": 7, "x": 2.5, "t": True, "z": None, "e": "", "u": "日本語 ßtraße ǆ İ ΑΣ 😀", "q": "it's \"q\" \\ \n\t\x7f\u200b",
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "m": [{"role": "user", "n": 1, "k": {"v": [10, 20]}}, {"role": "assistant", "n": 2}, {"role": "user", "n": 3}],
    "d": {"b": 1, "a": [True, None, 1.5, "x"], "C": {"items": 3}}, "big": 9007199254740993, "f": [0.1, 1e16, 1e-5, 123456789.125, -0.0, 1e22, 5e-324, 100.0],
    "html": "<a href='x'>&\"</a>", "lines": "one\n\n  two\r\nthree\n",
}
EXPRESSIONS = """
[none, none]|sort ## m|sort(attribute='zz')|length ## [{'a': none, 'b': 1}, {'a': none, 'b': 2}]|sort(attribute='a') ## [none, 1]|sort ## [d, d]|sort|length ## {'a': none, 'b': none}|dictsort(by='value') ## [{'a': none}]|groupby('a') ## [{'a': none}, {'a': none}]|groupby('a')
s|nosuch if e else 'ok' ## s|nosuch if t else 'ok' ## 'ok' if t else s is nosuch ## s|nosuch ## (s|nosuch if e) is undefined ## (s if e else s)|nosuch
m|sort(attribute='role,n')|map(attribute='n')|list ## m|sort(attribute='role,n', reverse=true)|map(attribute='n')|list ## [['b', 1], ['A', 2], ['a', 1], ['B', 0]]|sort(attribute='0,1') ## [['b', 1], ['A', 2], ['a', 1]]|sort(true, true, '0,1') ## m|sort(attribute='role,zz') ## m|groupby('role') ## m|groupby('role')|map(attribute='grouper')|list ## (m|groupby('role')|first).list|length ## m|groupby('n')|list|length ## w|map('list')|groupby(0) ## ['b', 'A', 'a', 'B']|map('list')|groupby('0') ## ['a', 'A']|map('list')|groupby(0, case_sensitive=true)
m|groupby('k') ## m|groupby('zz') ## m|groupby('zz', default='none') ## m|groupby() ## m|groupby('role')|first|length ## (m|groupby('role'))[0][1]|map(attribute='n')|list ## (m|groupby('role'))[1].grouper ## (m|groupby('role'))[1].nope is defined ## (1, 2).grouper is defined
d.items() in d ## d.keys() in d ## d.values() in d ## ('b', 1) in d.items() ## 'b' in d.keys() ## 1 in d.values() ## d.keys() == {'a': 1, 'C': 2, 'b': 3}.keys() ## d.items() == d.items() ## d.values() == d.values() ## d.keys() == d.items() ## {d.keys(): 1} ## [d.items()]|unique|list
s|wordwrap(5) ## s|wordwrap(0) ## ''|wordwrap(0) ## lines|wordwrap(3) ## 'a-b c-d-e foo-bar -- x'|wordwrap(6) ## 'a-b c-d-e foo-bar'|wordwrap(6, break_on_hyphens=false) ## 'abcdefghij klm'|wordwrap(4) ## 'abcdefghij klm'|wordwrap(4, false) ## 'one two three'|wordwrap(7, true, '<br>') ## u|wordwrap(3) ## n|wordwrap ## undefd|wordwrap
d|pprint ## m|pprint ## (m + m)|pprint ## s|pprint ## (s * 9)|pprint ## [s * 9, u * 4]|pprint ## (lines * 12)|pprint ## {'k': lines * 12, 'a': {'b': s * 6, 3: [1, 2]}, 2: none}|pprint ## range(60)|list|pprint ## (range(40)|list, )|pprint ## ('ab', )|pprint ## undefd|pprint ## none|pprint ## (m * 3)|groupby('role')|pprint ## {'b' * 90: 1}|pprint ## [[]]|pprint ## {}|pprint
s|truncate(9) ## s|truncate(9, true) ## s|truncate(4, true, '', 0) ## u|truncate(8, false, '…', 0) ## 'a b'|truncate ## s|truncate(2) ## s|truncate(5, leeway=-1) ## undefd|truncate ## 'foo bar baz qux'|truncate(11, false, '...', 0)
'a b c'|wordcount ## u|wordcount ## ''|wordcount ## "don't x_y"|wordcount ## 12|wordcount ## l|slice(2)|list ## w|slice(3, 'x')|list ## range(7)|slice(3)|list ## l|slice(5, 0)|list ## 'abcde'|slice(2)|list
s|urlencode ## 'a/b c?&é'|urlencode ## {'a b': 'c/d', 'é': 1}|urlencode ## [('a', 1), ('b', 'x y')]|urlencode ## 12|urlencode ## 0|filesizeformat ## 1|filesizeformat ## 999|filesizeformat ## 13000|filesizeformat ## 4100000|filesizeformat
2000|filesizeformat(true) ## 1.5e9|filesizeformat ## 1000000|filesizeformat(binary=true) ## undefd|last is defined ## undefd|last ## 1 is sameas(1) ## n is sameas 7 ## n is sameas 8 ## none is sameas(none) ## 1 is sameas true
s|trim ## s.strip() ## s.lstrip('H') ## s.rstrip() ## s.strip('H !') ## s[0] ## s[-1] ## s[1:4] ## s[::-1] ## s[::2] ## s[-5:-2] ## s[10:2:-2]
u|upper ## u|lower ## u|title ## u|capitalize ## u.title() ## u.swapcase() ## u[0] ## u[-1] ## u|length ## u[::-1] ## u|reverse ## u.upper().lower()
u.split() ## s.split(',') ## s.split(', ', 1) ## 'a b  c'.split(' ') ## ' a b  c '.split() ## 'a,b,c'.rsplit(',', 1) ## ' a b c '.split(None, 1) ## ' a b c '.rsplit(None, 1)
'a-b-c'.partition('-') ## 'a-b-c'.rpartition('-') ## 'abc'.partition('x') ## lines.splitlines() ## lines.splitlines(true) ## 'abc'.find('c') ## 'abc'.find('z') ## 'ßab'.find('b')
'abcabc'.rfind('b') ## 'abcabc'.count('b') ## 'abc'.count('') ## 'abc'.index('q') ## 'abc'.replace('b', 'XX') ## 'aaa'.replace('a', 'b', 2) ## 'ab'.replace('', '-')
'-'.join(['a', 'b']) ## '-'.join([1]) ## 'abc'.startswith('ab') ## 'abc'.startswith(('x', 'a')) ## 'abc'.endswith('bc') ## 'abc'.startswith('b', 1) ## 'abc'.endswith('b', 0, 2)
'7'.zfill(3) ## '-7'.zfill(4) ## 'a'.center(4, '*') ## 'ab'.center(5) ## 'a'.ljust(3) ~ '|' ## 'a'.rjust(3) ## 'xay'.removeprefix('x') ## 'xay'.removesuffix('y')
'abc'.isalpha() ## '12'.isdigit() ## 'a1'.isalnum() ## ' '.isspace() ## 'AB'.isupper() ## 'ab'.islower() ## ''.isalpha() ## 'é'.isalpha() ## 'a'.capitalize() ## 'hello world-foo'.title()
'{} and {}'.format(1, 'b') ## '{0}{1}{0}'.format('a', 'b') ## '{x:>5}|'.format(x='a') ## '{:.2f}'.format(3.14159) ## '{:05d}'.format(42) ## '{{}}'.format() ## '{:,}'.format(1234567)
'%s is %d' % ('a', 3) ## '%05.1f' % 2.25 ## '%x' % 255 ## '%s' % [1] ## '%d' % 'x' ## '%s %s' % ('a',) ## '%(a)s' % {'a': 1} ## '%r' % 'a' ## '%5s|%-5s|' % ('a', 'b') ## '100%%' % () ## 'a%' % 1
1 + 2 * 3 ## 7 / 2 ## 7 // 2 ## -7 // 2 ## -7 % 3 ## 7 % -3 ## 2 ** 10 ## 2 ** -1 ## 2 ** 3 ** 2 ## -2 ** 2 ## 7.5 // 2 ## -7.5 % 2 ## 1 / 0 ## 1 // 0 ## 1 % 0 ## 1.0 / 0
2.0 ** 1023 ## 2.0 ** 1024 ## 10.0 ** 309 ## (-10.0) ** 309 ## 10.0 ** -400 ## x ** 5000 ## 2 ** 0.5 ## 2 ** -1074 ## 2 ** -1080 ## 1e308 * 10 ## (1e308 * 10) ** 2 ## (-1e308 * 10) ** 3 ## 2 ** -(1e308 * 10) ## 2.0 ** (big * 1.0)
big / 3 ## big / 1 ## (big + 2) / big ## 9223372036854775807 / 9223372036854775806 ## 9223372036854775807 / 3 ## (-9223372036854775807 - 1) / -1 ## (-9223372036854775807 - 1) / 7 ## 1 / 9223372036854775807 ## 0 / -9223372036854775807 ## 0 / -7 ## big / 0 ## big // 3 ## big / 2.0
'a' * 3 ## [1] * 2 ## [1] + [2] ## (1, 2) + (3,) ## 'a' + 'b' ## 'a' + 1 ## 1 + 'a' ## 'a' ~ 1 ~ none ~ true ## true + 1 ## not 1 ## -x ## +n ## - 'a'
f ## 1e3 ## 1.0 ## 1e100 ## 0.1 + 0.2 ## 1_000 ## 0x1F ## 0b11 ## 0o17 ## big ## x|int ## '3.7'|int ## 'abc'|int ## 'abc'|int(-1) ## '0x1f'|int(base=16) ## none|int ## ' 12 '|int ## '1_0'|int ## undefd|int
'1.5'|float ## 'x'|float ## 3|float ## 2.5|round ## 3.5|round ## 2.675|round(2) ## 2.4|round(0, 'ceil') ## 2.6|round(method='floor') ## 7|round ## -3|abs ## 1.25|round(1)
1 < 2 < 3 ## 1 < 2 > 5 ## 1 == 1.0 ## 1 == true ## 'a' == 'a' ## [1, 2] == [1, 2] ## (1,) == [1] ## {'a': 1} == {'a': 1.0} ## none == none ## 'a' < 'b' ## 'a' < 1 ## [1, 2] < [1, 3] ## none < 1
2 in l ## 'ell' in s ## 'x' not in s ## 'b' in d ## 1 in d ## 1 in 'abc' ## 'a' in ['a'] ## 3 in range(5) ## 'x' in undefd ## 1 in none ## not 2 in l ## 'user' in m|map(attribute='role')
t and 'yes' ## e or 'no' ## z or e or 0 ## t or undefd.foo ## 'a' if t ## 'a' if e ## 'a' if e else 'b' ## 'a' if e else 'b' if z else 'c' ## ('a' if e) is defined ## 1 and 2 and 3
undefd ## undefd.x ## undefd is defined ## d.nope is defined ## d.nope.more ## undefd|default('x') ## e|default('x') ## e|default('x', true) ## none|default('x') ## d.nope|d('y') ## undefd + 1 ## undefd ~ 'a'
undefd|length ## undefd|list ## undefd|join(',') ## undefd|upper ## undefd|string ## undefd|first ## undefd == undefd2 ## undefd < 1 ## [undefd] ## undefd() ## undefd[0] ## undefd|tojson ## undefd|items|list
l[0] ## l[-1] ## l[9] ## l[9] is defined ## l[1:] ## l[::-1] ## l[:-1] ## l['x'] ## l[true] ## (1, 2, 3)[1:] ## range(10)[2:8:3] ## range(3) ## range(5)[1] ## l[5:] ## l[none:2] ## l[::0] ## d[1:] ## l.0 ## m.0.role
d ## d.b ## d['a'] ## d.a[3] ## d.C.items ## d.C['items'] ## d.get('b') ## d.get('q') ## d.get('q', 5) ## d.items()|list ## d.keys() ## d.values()|list ## d.items() ## d.items()|length ## d.keys()|list|length
d['items'] is mapping ## d.items is callable ## d['get']('b') ## s.nope is defined ## 'abc'['upper']() ## l.append(4) ## l.append is defined ## d.update({'x': 1}) ## d.pop('b') ## s.__class__ ## d.__len__ is defined
{'a': 1, 'b': [1, (2,), ()]} ## {1: 2, none: 3, true: 4} ## {'a': 1, 'a': 2} ## {[1]: 2} ## [] ## () ## {} ## (1,) ## [1, 2,] ## {'x': {'y': {}}} ## q ## [q] ## [s, u] ## ['it\\'s'] ## ["a'b\\"c"] ## 'a' 'b'
'\\n\\t\\x41\\u00e9\\U0001F600\\\\' ## '\\q' ## "\\"" ## '\\101' ## [none, true, 1.0, 'é', '\\x00', '\\u200b', '\\xa0'] ## dict(a=1, b=2) ## dict([('x', 1)]) ## dict({'a': 1}, b=3)
d|tojson ## d|tojson(indent=2) ## d|tojson(indent=0) ## d|tojson(sort_keys=true) ## d|tojson(separators=(',', ':')) ## u|tojson ## u|tojson(ensure_ascii=true) ## q|tojson(ensure_ascii=true) ## q|tojson ## f|tojson ## [] |tojson(indent=4) ## {}|tojson(indent=4)
{'a': [], 'b': {}, 'c': [1, {'d': 2}]}|tojson(indent=2) ## {1: 2, none: 3, 1.5: 4, false: 0}|tojson ## (1, 2)|tojson ## html|tojson ## [undefd]|tojson ## d|tojson(indent='--') ## range(3)|tojson ## {'b': 1, 'a': 2}|tojson(false, 1, none, true) ## '\\x7f\\x1f'|tojson
l|sort ## l|sort(reverse=true) ## w|sort ## w|sort(case_sensitive=true) ## [1, 'a']|sort ## m|sort(attribute='n', reverse=true)|map(attribute='n')|list ## l|max ## l|min ## w|min ## []|max is defined ## m|sum(attribute='n') ## l|sum ## [[1], [2]]|sum(start=[])
w|unique|list ## ['a', 'A', 1, 1.0]|unique|list ## w|join ## l|join(', ') ## m|join('-', attribute='role') ## l|first ## l|last ## []|first ## []|last ## s|first ## l|reverse|list ## 'abc'|last ## d|first ## d|last ## d|list ## s|list
m|map(attribute='role')|list ## m|map(attribute='k.v.1')|list ## m|map(attribute='k', default='none')|list ## w|map('upper')|list ## w|map('replace', 'a', 'z')|join ## m|map(attribute='zz')|list ## w|map('nope')|list ## [[1, 2], [3]]|map('first')|list
m|selectattr('role', 'equalto', 'user')|list|length ## m|selectattr('k')|list|length ## m|rejectattr('role', '==', 'user')|map(attribute='n')|list ## l|select('odd')|list ## l|reject('gt', 1)|list ## [0, 1, '', 'a', none]|select|list ## m|selectattr('k', 'defined')|list|length
m|selectattr('n', 'in', [1, 3])|map(attribute='n')|list ## ['a', 1, none]|select('string')|list ## m|selectattr('role', 'nope')|list ## (m|selectattr('n', 'gt', 99)) is iterable ## 'x' if (m|selectattr('n', 'gt', 99)) ## l|select('odd')|length
d|dictsort ## d|dictsort(true) ## {'b': 1, 'a': 2}|dictsort(by='value') ## {'b': 1, 'a': 2}|dictsort(reverse=true) ## d|items|list ## [1]|items|list ## l|batch(2)|list ## l|batch(2, 0)|list ## 'abc'|batch(2)|list ## d|length ## n|length ## none|length
lines|indent ## lines|indent(2, true) ## lines|indent(2, blank=true) ## 'a\\nb'|indent('> ') ## 'a\\nb'|indent(width=0) ## html|e ## html|escape|length ## html|safe ## html|safe ~ '<' ## 'x'|safe + '<' ## '<' + 'x'|e ## html|forceescape ## 5|string + 'x' ## none|string ## 'ab'|center(6) ~ '|'
'%s-%s'|format('a', 2) ## 'xaxbx'|replace('x', 'y', 2) ## 5|replace('5', 6) ## '  a '|trim ~ '|' ## 'xxaxx'|trim('x') ## 'fOO bar-baz (qux)'|title ## 'HELLO'|capitalize ## 12|upper ## none|upper ## 'a b c'|wordcountx
s is string ## l is string ## d is mapping ## l is sequence ## s is sequence ## d is sequence ## n is iterable ## s is iterable ## n is number ## x is number ## t is number ## t is integer ## n is integer ## x is float ## t is boolean ## n is boolean ## z is none
undefd is undefined ## undefd is iterable ## undefd is sequence ## undefd is string ## t is true ## 1 is true ## e is false ## false is false ## n is odd ## n is even ## n is divisibleby 7 ## n is divisibleby(2) ## 1 is eq 1 ## 1 is equalto(2) ## 1 is ne 2 ## 1 is lt 2 ## n is in [7]
n is not none ## not n is none ## n is gt 3 and n is lt 9 ## none is sameas none ## 'A' is upper ## 'a' is lower ## 'trim' is filter ## 'zork' is filter ## 'odd' is test ## range is callable ## namespace is defined ## loop is defined ## n is defined is none ## l is not iterable
range(3)|list ## range(5, 0, -2)|list ## range(1, 4)|sum ## range(200000) ## range(0) ## range(1, 2, 0) ## range('a') ## namespace(a=1).a ## namespace(a=1) ## namespace({'a': 2}, b=3).b ## namespace(a=1).zz is defined ## namespace(_a=1) ## namespace(1) ## namespace()['x']
raise_exception('no ' ~ n) ## raise_exception(undefd) ## raise_exception() ## raise_exception('a', 'b') ## strftime_now('%d %b %Y') ## strftime_now('%Y-%m-%d %H:%M:%S %j %A %B %p %y') ## strftime_now is defined ## nofunction(1) ## s() ## none.foo is defined ## none.foo.bar ## n.foo is defined
1 if 2 else 3 if 4 ## (1, 2)|join ## [1, [2, [3]]] ## 'a' in 'abc' and 'd' not in 'abc' ## l|length > 2 ## l|length - 1 ## -1|abs ## (-1)|abs ## 2 * l|length ## 'a' ~ 'b'|upper ## s|trim|upper|lower ## s.strip().split(', ')[1][::-1]|upper ## a.b ## *l ## 1 +
l|join(d='-') ## 'x'|default(default_value='y') ## m[0].k.v[1] ## m[0]['k']['v'][-1] ## m|length == 3 and m[-1].role == 'user' ## (m|last).n ## m[1:]|map(attribute='n')|list ## [m[0].n, m[1].n]|tojson ## d.a|tojson ## big + 1 ## big * 1.0 ## 1 == 1 == 1 ## 1 != 2
"""
STATEMENTS = [
    "{% if e %}{{ s|nosuch }}{% endif %}ok", "{% if e %}{{ s is nosuch }}{% elif t %}ok{% else %}{{ s|nosuch(1) }}{% endif %}", "{% if t %}{{ s|nosuch }}{% endif %}", "{% if s|nosuch %}{% endif %}",
    "{% if e %}{% for i in l %}{{ i|nosuch }}{% endfor %}{% endif %}", "{% if e %}{% for i in l|nosuch %}{{ i }}{% endfor %}{% endif %}ok", "{% for i in l %}{% if i > 9 %}{{ i|nosuch }}{% endif %}{{ i }}{% endfor %}",
    "{% if e %}{% for i in l if i is nosuch %}{% endfor %}{% endif %}ok", "{% if e %}{% macro f(a=1|nosuch) %}{% endmacro %}{% endif %}ok", "{% if e %}{% filter nosuch %}x{% endfilter %}{% endif %}ok",
    "{% if e %}{% set a = s|nosuch %}{% endif %}ok", "{% if e %}{% set a %}{{ s|nosuch }}{% endset %}{% endif %}ok", "{% if e %}{% with a = s|nosuch %}{% endwith %}{% endif %}ok",
    "{% if e %}{% with a = s %}{{ a|nosuch }}{% endwith %}{% endif %}ok", "{% macro f() %}{% if e %}{{ s|nosuch }}{% endif %}x{% endmacro %}{{ f() }}",
    "  {% if t %}\n  yes\n  {% endif %}\nend\n", "a {%- if t -%} \n b \n {%- endif -%} c", "  {%+ if t %}x{%+ endif %}\n y", "{% if t +%}\nx{% endif +%}\ny", "{{ 1 -}}  \n x", "x \n {{- 1 }}\ny",
    "{# c #}\nx{#- c -#} y {# multi\nline #}\n z", "  {# c #}\nx", "  {{ 1 }}\nx", "a\n\n", "a\n\n\n", "\r\na\rb\r\n", "{% raw %}{{ x }}{% endraw %}", "  {%- raw -%}  {% if %} {%- endraw -%}  x", "{% raw %}\n a\n {% endraw %}\nb",
    "\t{% set a = 1 %}\t\n{{ a }}", "x {% set a = 1 %} y", "\xa0{%- if t %}\u2003{%- endif %}", "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}", "{{{'a': {'b': 1}}}}", "{ {{ 1 }} } { % #} {", "{{ {'a': 1}['a'] }}", "{##}x{#-#} y", "{# a -#}\n\n x", "{{ 1 }}\n{{ 2 }}\n\n", "{%if t%}a{%endif%}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }},{% endfor %}", "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in undefd %}x{% else %}none{% endfor %}", "{% for i in n %}x{% endfor %}", "{% for i in z %}x{% endfor %}", "{% for c in 'añ😀' %}{{ c }}.{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for i in l if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}", "{% for i in l if i > 9 %}x{% else %}e{% endfor %}", "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% break %}", "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in l %}{% set n = i %}{{ n }}{% endfor %}{{ n }}", "{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}", "{% for i in l %}{% if loop.first %}{% set y = i %}{% endif %}{{ y is defined }}{{ y }}{% endfor %}{{ y is defined }}", "{% if t %}{% set y = 5 %}{% endif %}{{ y }}", "{% set n = n + 1 %}{{ n }}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{{ loop }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a = 1, 2 %}{{ a }}", "{% set a %}x{{ 1 }}\n{% endset %}[{{ a }}]{{ a is string }}", "{% set a | upper | replace('X', 'y') %}x{{ 1 }}{% endset %}{{ a }}", "{% set d.x = 1 %}", "{% set q.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace() %}{% set ns.a = [1] %}{{ ns.a }}{{ ns.b is defined }}{{ ns['a'] }}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set x.y.z = 1 %}",
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}g{% endmacro %}{{ f() }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro f() %}{% set n = 99 %}{{ n }}{% endmacro %}{{ f() }}{{ n }}", "{% macro f() %}[{{ caller(1) }}]{% endmacro %}{% call(x) f() %}c{{ x }}{% endcall %}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}c{{ n }}{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}c{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "{% macro f() %} x {% endmacro %}{{ f()|trim }}|{{ f() ~ 1 }}|{{ f()|length }}", "{% macro f(a, b) %}{{ b is defined }}{{ b }}{% endmacro %}{{ f(1) }}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}", "{% macro f(a) %}{{ loop is defined }}{{ a }}{% endmacro %}{% for i in l %}{{ f(i) }}{% endfor %}",
    "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{% filter upper %}a{{ n }}b{% endfilter %}", "{% filter length %}abc{% endfilter %}", "{% filter replace('a', 'b')|upper %}aa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{% endwith %}{{ q }}", "{% generation %}x{{ n }}{% set k = 1 %}{% endgeneration %}{{ k }}", "a{% for i in l %}{% generation %}é{{ i }}{% endgeneration %}\n{% endfor %}b", "{% print 1, 2 %}",
    "{% if z %}1{% elif e %}2{% elif n == 7 %}3{% else %}4{% endif %}", "{% if undefd %}1{% else %}2{% endif %}", "{% if not undefd.x %}{% endif %}", "{% if t: %}x{% endif %}", "{% if t %}", "{% endif %}", "{% if %}{% endif %}", "{% for %}", "{% for i in l %}", "{{ 1", "{% set x = ", "{{ }}", "{{ 'abc }}", "{{ a b }}", "{{ (1 }}", "{{ [1, }}", "{# open", "{% raw %}x", "{% nosuch %}", "{{ 1 | nosuch }}", "{{ 1 is nosuch }}", "{{ ) }}", "{{ 1 ? 2 }}", "{{ a.'b' }}", "{{ f(a=1, 2) }}", "{% macro %}", "{% if t %}x{% endfor %}", "{% else %}", "{{ 1 is odd is even }}",
    "{%- for m_ in m -%}\n  {{- '<|' ~ m_.role ~ '|>\\n' -}}\n  {%- if not loop.last %} {% endif -%}\n{%- endfor -%}\n", "{% for a in l %}\n  {% for b in l %}\n    {{ a * b }}\n  {% endfor %}\n{% endfor %}\n", "{{ m|selectattr('n')|list|length }}{% set g = m|selectattr('n', 'gt', 1) %}{{ g|list|length }}{{ g|list|length }}", "{% set it = d.items() %}{{ it|length }}{% for k, v in it %}{{ k }}{% endfor %}{% for k, v in it %}{{ k }}{% endfor %}", "{% set k = 'a' %}{{ {k: 1, 'b': k} }}", "{{ [1,2,3]|map('string')|join('+') }}{{ (1,2)|list }}", "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}{{ ns }}",
    "{{ messages is defined }}{{ x if x is defined else 'no' }}", "{% set fs = [] %}{% macro a() %}A{% endmacro %}{% macro b(x) %}B{{ x }}{% endmacro %}{% set fs = fs + [a, b] %}{{ fs[0]() }}{{ fs[1](3) }}", "{% for i in l %}{% set s2 %}{{ i }}{% if i == 1 %}{% continue %}{% endif %}{% endset %}{{ s2 }}{% endfor %}", "{{ n }} {%- set a = 1 %}\n  b", "{{ 'a\nb' }}", "{{ 'tab\tx' }}", "{{ \"line \\\n next\" }}", "{% set _ = l %}{{ _ }}", "{{ 'x' if true }}{{ 'y' if True }}{{ None is none }}{{ False }}{{ true }}", "{{ joiner }}", "{% set x = x|default('d') %}{{ x }}", "{{- '' -}}", "{{ l|map('string')|join(', ')|length }}",
    "{{ 1..x }}", "{{ l[1:2:3:4] }}", "{{ z[1:] }}", "{{ n[:2] }}", "{{ undefd[1:] }}", "{{ none|map('upper')|list }}{{ none|select|list }}{{ 0|selectattr('a')|list }}", "{{ {1, 2} }}", "{{ lambda }}", "{{ 1 if }}", "{{ not }}", "{{ 'a'.upper }}", "{{ m | tojson | safe }}", "{{ [m[0]] | tojson(indent=4) }}", "{{ l | sort | first }}", "{{ (l | length) ~ (w | length) }}", "{% set x = namespace(a=namespace(b=1)) %}{{ x.a.b }}", "{{ s[n] }}{{ s[99] }}|{{ s['a'] }}", "{{ ''.join(['a', 'b']) }}{{ ', '.join(d) }}{{ ','.join(m|map(attribute='role')) }}", "{{ [[1, 2], [3, 4]] | map('last') | list }}", "{{ 'ABC' | map('lower') | join }}", "{{ [1, 2] | string }}", "{{ [none, true] | join(',') }}", "{{ {'a': none} }}",
]


def laid_out():
    """Random texts and values for the filters that lay text out."""
    draw = random.Random(7)
    marks = ["a", "be", "sea", "d-e", "x--y", "-", "--", "l'été", "日本", "A.", "b,", "\t", " ", "  ", "\n", "\x0b", "\xa0", "\u2003", "1-2", "q-1-r", "_x-y_", "«n»--m", "supercalifragilistic", "ha-ha-ha-ha", "²-b"]
    for _ in range(400):
        text = "".join(draw.choice(marks) + draw.choice(["", " "]) for _ in range(draw.randrange(40)))
        words, hyphens = draw.choice(["true", "false"]), draw.choice(["true", "false"])
        yield "{{ x|wordwrap(%d, %s, break_on_hyphens=%s) }}" % (draw.randrange(1, 30), words, hyphens), {"x": text}

    def value(depth):
        kind = draw.randrange(8 if depth < 4 else 4)
        if kind < 2:
            return "".join(draw.choice(marks) + draw.choice(["", " "]) for _ in range(draw.randrange(30)))
        if kind < 4:
            return draw.choice([None, True, draw.randrange(10**6), draw.random(), "", "it's"])
        if kind < 6:
            return [value(depth + 1) for _ in range(draw.randrange(6))]
        return {draw.choice(marks) * draw.randrange(1, 9): value(depth + 1) for _ in range(draw.randrange(5))}

    for _ in range(300):
        yield "{{ x|pprint }}", {"x": value(0)}


def divided():
    """Whole numbers, also beyond 2^53: Python rounds their quotient once, not the numbers before it."""
    draw = random.Random(11)
    for _ in range(300):
        a, b = (draw.choice((-1, 1)) * draw.getrandbits(draw.randrange(1, 64)) for _ in range(2))
        yield "{{ a / b }}", {"a": a, "b": b}


def cases():
    for line in EXPRESSIONS.strip().split("\n"):
        for expression in line.split(" ## "):
            yield "{{ " + expression + " }}", V
    for template in STATEMENTS:
        yield template, V
    yield from laid_out()
    yield from divided()
