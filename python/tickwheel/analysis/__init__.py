"""Analytics (rule S6) without Spark: what is read from ledgers, the page, and the figures for one machine.

    stores --slices--> messages --figures--> Parquet --> page

`ledgers` reads the stores. `figures` makes the figures in SQL, `local` all files of an analysis. The same is made on
Spark, for more than one machine can read, by `tickwheel.spark.analytics`, which uses `ledgers`, `shown`, `page` and
`output` too.
"""
