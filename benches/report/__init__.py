"""The report of `make bench`: parts of `docs/internals/benchmarks.md`, its charts, and tables in the terminal.

    python -m benches.report

Data flows one way: `results` reads the files of the suites, `targets` compares them with the targets, `tables` and
`charts` make tables and pictures, `page` puts those between the page's markers. Nothing is measured here.
"""
