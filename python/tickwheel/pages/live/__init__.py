"""A page that shows a wheel turning: of `tickwheel serve`, or of any timer (rule D14).

| part | what it is |
|---|---|
| `page.html`, `page.css` | the page without its figures; the style of all pages is `pages/style.css` |
| `words.js`, `wheel.js`, `lateness.js`, `figures.js` | numbers and times; rings; lateness; state, load and figures |
| `requests.js`, `messages.js` | asks the server; lists, one message, and what may be done with it |
| `start.js` | connects the parts |
| `assembly` | puts these into one file, which loads nothing |
| `frames` | what a timer sends to its page |
| `watching` | serves the page of a timer on loopback |

The page of `tickwheel serve` gets its figures from `delivery/serve/live.py`. Only the standard library is needed here.
"""
