"""Analytics (rule S6): what is read from ledgers, the figures in SQL, and the page.

    stores --slices--> messages --figures--> Parquet --> page

`ledgers` reads the stores. `making` makes all files of an analysis by the statements in `figures`. `local` runs these
by SQLite in this process, and `tickwheel.spark.analytics` by Spark, for more than one machine can read.
"""
