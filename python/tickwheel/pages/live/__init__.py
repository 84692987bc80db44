"""A page that shows a wheel turning: of `tickwheel serve`, of any timer, or of a recording (rule D14).

| part | what it is |
|---|---|
| `page.html`, `page.css` | the page without its figures; the style of all pages is `pages/style.css` |
| `words.js`, `wheel.js`, `lateness.js`, `figures.js` | numbers and times; rings; lateness by the second; the cards |
| `requests.js`, `messages.js` | asks the server; lists, one message, and what may be done with it |
| `playback.js`, `start.js` | plays a recording; connects the parts |
| `assembly` | puts these into one file, which loads nothing |
| `frames` | what a timer sends to its page |
| `watching` | serves the page of a timer on loopback |
| `playback` | writes the page of a recording |

The page of `tickwheel serve` gets its figures from `delivery/serve/live.py`. Only the standard library is needed here,
and pyarrow for a recording.
"""
