"""The results of `make bench` on a page: the generated parts of `docs/benchmarks.md`, its charts, the terminal.

    python -m benches.report

Data flows one way: `results` reads what the suites wrote, `targets` judges it, `tables` and `charts` put it into words
and pictures, `page` puts those between the page's markers. Nothing is measured here.
"""
