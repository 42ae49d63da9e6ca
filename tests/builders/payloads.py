"""Texts that would act if somebody let them: what a hostile log may hold as names and values.

Made by combining ways out of a place with things to do there, so that each place meets each. `HARM` is what a script
would do, `ADDRESS` what would be fetched: a test looks for the one and listens for the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

HARM: Final = "window.top.harmed=1"
ADDRESS: Final = "http://127.0.0.1:9/x"

BREAKOUTS: Final = (
    *("", '">', "'>", "`>", "</title>", "</style>", "</script>", "</textarea>", "</svg>", "</td></tr></table>"),
    *("-->", "]]>", "<!--><!-->", "*/", "</code></p>", "`` ` "),
)
ELEMENTS: Final = (
    f"<script>{HARM}</script>",
    f"<ScRiPt\n>{HARM}</sCrIpT\t>",
    f"<script src={ADDRESS}></script>",
    f"<img src=x onerror={HARM}>",
    f"<img/src={ADDRESS}>",
    f"<svg/onload={HARM}>",
    f"<svg><script>{HARM}</script></svg>",
    f"<svg><animate onbegin={HARM} attributeName=x dur=1s></svg>",
    f"<svg><image href={ADDRESS} /><use href={ADDRESS}#a /></svg>",
    f"<svg><foreignObject><iframe src={ADDRESS}></iframe></foreignObject></svg>",
    f"<math><mtext><style><img src=x onerror={HARM}></style></mtext></math>",
    f"<iframe src={ADDRESS}></iframe>",
    f"<iframe srcdoc='<script>{HARM}</script>'></iframe>",
    f"<iframe src='javascript:{HARM}'></iframe>",
    f"<object data={ADDRESS}></object><embed src={ADDRESS}>",
    f"<details open ontoggle={HARM}>",
    f"<input autofocus onfocus={HARM}>",
    f"<video poster={ADDRESS}><source onerror={HARM}></video>",
    f"<audio src={ADDRESS} onerror={HARM}>",
    f"<body onload={HARM} background={ADDRESS}>",
    f"<style onload={HARM}>@import '{ADDRESS}';</style>",
    f"<div style='background:url({ADDRESS})' onclick={HARM}>",
    f"<link rel=stylesheet href={ADDRESS}>",
    f"<link rel=prefetch href={ADDRESS}>",
    f"<meta http-equiv=refresh content='0;url={ADDRESS}'>",
    f"<base href={ADDRESS}>",
    f"<form action={ADDRESS}><button autofocus>a</button></form>",
    f"<a href='javascript:{HARM}' ping={ADDRESS}>a</a>",
    f"<noscript><p title='</noscript><img src=x onerror={HARM}>'>",
    f"<template><script>{HARM}</script></template>",
)
QUOTES: Final = ('"', "'", "`", " ", "/", "\t", "\n", '\\"', "&quot;")
ATTRIBUTES: Final = (
    f"onmouseover={HARM} x=",
    f"autofocus onfocus={HARM} x=",
    f"style=animation:x onanimationstart={HARM} x=",
    f"style=background:url({ADDRESS}) x=",
    f"src={ADDRESS} onerror={HARM} x=",
    f"href=javascript:{HARM} x=",
)
STRINGS: Final = ('"', "'", "`", '\\"', "\\'", "\\", "\u2028", "${", "</script>")
STATEMENTS: Final = (f";{HARM};//", f"+({HARM})+", f"}};{HARM};{{", f"-{HARM}-")
ADDRESSES: Final = (
    f"javascript:{HARM}",
    f"JaVaScRiPt:{HARM}",
    f"java\tscript:{HARM}",
    f"\x01javascript:{HARM}",
    f"vbscript:{HARM}",
    f"data:text/html,<script>{HARM}</script>",
    "//127.0.0.1:9/x",
    "\\\\127.0.0.1\\x",
    ADDRESS,
    "file:///etc/passwd",
)
LINKS: Final = ("{}", "[a]({})", "![a]({})", "<{}>", "[a]: {}", "a](b) ![c]({})", "url({})", "`{}`")
FORMULAS: Final = (
    f'HYPERLINK("{ADDRESS}","open")',
    "1+cmd|' /C calc'!A0",
    "SUM(1+1)*cmd|' /C calc'!A0",
    f'WEBSERVICE("{ADDRESS}")',
    f'IMPORTXML("{ADDRESS}","//a")',
    "2+3",
)
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t=", "\r=", "\n=", "\r\n=", '"=', ";=", ",=")
ESCAPES: Final = ("\x1b", "\x9b", "\x1b\x1b", "\x90", "\x9d")
COMMANDS: Final = ("[31mred", "[2J[H", "]0;title\x07", f"]8;;{ADDRESS}\x1b\\a", "]52;c;YQ==\x07", "[6n", "P1;1|x\x1b\\")
SINGLE: Final = (
    *("\x07bell", "a\x08\x08\x08b", "a\rb", "zero \x00 byte", "\x7f", "\x0e shifted \x0f", "a\x85b", "a\u2028b\u2029c"),
    *("right \u202egpj.exe left", "\u2066\u2067\u2068a\u2069", "\u200f\u200ea\u061c", "\u202a\u202b\u202ca\u202d"),
    *("invisible \u200b\u00ad\ufeff\U000e0041", "\u2060\u2061a\u180e", "\ufff9a\ufffab\ufffb", "\U0001d173a"),
    *("a\nERROR all is well", "a\r\n2026-11-22 INFO b", "a\n\n\n\n", "quote \" back \\ slash ' line"),
)
QUERIES: Final = (
    *("'; DROP TABLE findings; --", '"; DROP TABLE findings; --', "` ; DROP TABLE findings; --", "' OR '1'='1"),
    *("\\'; DROP TABLE findings; --", "') UNION SELECT value FROM configs --", "/* */ '; --", "a' || pg_sleep(9) || '"),
)
PATHS: Final = (
    *("../../../etc/passwd", "..\\..\\windows\\win.ini", "/etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a/../../b"),
    *("C:\\windows", "a\x00.html", "./.", "~/.ssh/id_rsa", "....//....//a", "con.html", "/dev/zero"),
)
TEMPLATES: Final = (
    *("{{ 7 * 7 }}", "{% raw %}", "{# a #}", "{{ ''.__class__.__mro__ }}", "{%- include '/etc/passwd' -%}"),
    *("{{{7*7}}}", "${7*7}", "#{7*7}", "<%= 7*7 %>", "@{7*7}", "!{7*7}", "[[7*7]]", "\\(7*7\\)", "$$7*7$$"),
    *("$(id)", "`id`", "%s%n%x", "{0.__class__}", "<?php phpinfo() ?>", "${jndi:ldap://127.0.0.1:9/x}"),
)


def _payloads() -> Iterator[str]:
    yield from map("".join, product(BREAKOUTS, ELEMENTS))
    yield from map("".join, product(QUOTES, ATTRIBUTES))
    yield from map("".join, product(STRINGS, STATEMENTS))
    yield from (link.format(address) for link, address in product(LINKS, ADDRESSES))
    yield from map("".join, product(FORMULA_STARTS, FORMULAS))
    yield from map("".join, product(ESCAPES, COMMANDS))
    for element in ELEMENTS[:8]:
        yield from _encoded(element)
    yield from (*SINGLE, *QUERIES, *PATHS, *TEMPLATES)


def _encoded(text: str) -> Iterator[str]:
    """The same in the spellings that somebody may decode once too often, or too late."""
    yield text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield text.replace("<", "&amp;lt;").replace(">", "&amp;gt;")
    yield "".join(f"&#{ord(character)};" for character in text)
    yield "".join(f"&#x{ord(character):x}" for character in text)
    yield "".join(f"%{ord(character):02x}" for character in text)
    yield text.replace("<", "\\u003c").replace(">", "\\u003e")
    yield text.replace("<", "\\x3c").replace(">", "\\x3e")
    yield text.replace("<", "\uff1c").replace(">", "\uff1e")
    yield text.replace("<", "+ADw-").replace(">", "+AD4-")
    yield text.replace("<", "<\x00").replace("script", "scr\u200bipt")


PAYLOADS: Final = tuple(dict.fromkeys(_payloads()))
