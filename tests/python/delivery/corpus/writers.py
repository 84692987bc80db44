"""Writes the same five records by the libraries and programs of others, in the forms that each of them can write.

    python tests/python/delivery/corpus/writers.py FOLDER

It needs pandas, polars, duckdb, fastparquet, pyarrow, pyspark and jq. The files are in `written`, so tests need none of
these. `test_written.py` has what is to be read from each.
"""

import csv
import datetime as dt
import decimal
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAMES = ["id", "key", "due", "text"]
FIRST = dt.datetime(2026, 1, 31, 8, 0, 0, tzinfo=dt.UTC)
ROWS: list[tuple[str, str | None, dt.datetime, str]] = [
    ("a", "k1", FIRST, "plain"),
    ("b", None, FIRST + dt.timedelta(milliseconds=1), "with, comma; and semicolon"),
    ("c", "k2", FIRST + dt.timedelta(milliseconds=500), 'with "quotes"'),
    ("d", "k1", FIRST + dt.timedelta(milliseconds=999), "two\nlines"),
    ("e", None, FIRST + dt.timedelta(days=1), "ünï ✓"),
]
Made = Iterator[tuple[str, bytes]]


def columns(due: Callable[[dt.datetime], Any] = lambda at: at) -> dict[str, list[Any]]:
    return {name: [due(row[2]) if name == "due" else row[at] for row in ROWS] for at, name in enumerate(NAMES)}


def text_of(at: dt.datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def ms_of(at: dt.datetime) -> int:
    return round(at.timestamp() * 1000)


def by_pyarrow() -> Made:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    def parquet(table: Any, **options: Any) -> bytes:
        out = io.BytesIO()
        pq.write_table(table, out, **options)
        return out.getvalue()

    plain = pa.table(columns())
    for name, options in {
        **{f"compression-{it}": {"compression": it} for it in ("none", "snappy", "gzip", "brotli", "zstd", "lz4")},
        **{f"version-{it}": {"version": it} for it in ("1.0", "2.4", "2.6")},
        "pages-v2": {"data_page_version": "2.0"},
        "pages-v2-zstd": {"data_page_version": "2.0", "compression": "zstd"},
        "without-dictionaries": {"use_dictionary": False},
        "delta-text": {
            "use_dictionary": False,
            "column_encoding": {"text": "DELTA_BYTE_ARRAY", "id": "DELTA_LENGTH_BYTE_ARRAY"},
        },
        "row-groups-of-one": {"row_group_size": 1},
        "small-pages": {"data_page_size": 1, "write_batch_size": 1},
        "without-statistics": {"write_statistics": False},
        "page-index": {"write_page_index": True},
        "checksums": {"write_page_checksum": True},
        "sorted": {"sorting_columns": [pq.SortingColumn(0)]},
        "without-schema": {"store_schema": False},
        "int96": {"use_deprecated_int96_timestamps": True},
    }.items():
        yield f"pyarrow-{name}.parquet", parquet(plain, **options)

    def of(name: str, kind: Any, due: Callable[[dt.datetime], Any] = lambda at: at) -> tuple[str, bytes]:
        cells = pa.array(columns(due)["due"]).cast(kind, safe=False) if kind else pa.array(columns(due)["due"])
        return f"pyarrow-due-{name}.parquet", parquet(plain.set_column(2, "due", cells))

    for unit in ("ms", "us", "ns"):
        yield of(f"timestamp-{unit}", pa.timestamp(unit, "UTC"))
        yield of(f"timestamp-{unit}-berlin", pa.timestamp(unit, "Europe/Berlin"))
        yield of(f"naive-{unit}", pa.timestamp(unit))
    yield of("int64", pa.int64(), ms_of)
    yield of("uint64", pa.uint64(), ms_of)
    yield of("double", pa.float64(), ms_of)
    yield of("decimal", pa.decimal128(20, 0), lambda at: decimal.Decimal(ms_of(at)))
    yield of("decimal-with-zeros", pa.decimal128(20, 3), lambda at: decimal.Decimal(ms_of(at)))
    yield of("text", pa.string(), text_of)
    yield of("text-of-digits", pa.string(), lambda at: str(ms_of(at)))
    yield of("microseconds", pa.int64(), lambda at: ms_of(at) * 1000)
    yield of("seconds", pa.int64(), lambda at: ms_of(at) // 1000)
    yield of("dictionary", None, text_of)
    for name, kind in {
        "large-text": pa.large_string(),
        "text-view": pa.string_view(),
        "dictionaries": pa.dictionary(pa.int32(), pa.string()),
        "binary": pa.binary(),
    }.items():
        table = plain
        for at in (0, 1, 3):
            table = table.set_column(at, NAMES[at], table.column(at).cast(kind))
        yield f"pyarrow-{name}.parquet", parquet(table)
    nested = pa.table(
        {
            **columns(),
            "x": [{"a": [1, 2], "b": None}] * 5,
            "m": pa.array([[("p", 1)]] * 5, pa.map_(pa.string(), pa.int64())),
        }
    )
    yield "pyarrow-nested.parquet", parquet(nested)
    spread = plain.rename_columns(["order", "customer", "when", "text"])
    yield "pyarrow-other-names.parquet", parquet(spread)
    for name, options in {
        "usual": {},
        "quoted": {"quoting_style": "all_valid"},
        "semicolons": {"delimiter": ";"},
    }.items():
        out = io.BytesIO()
        pyarrow.csv.write_csv(pa.table(columns(text_of)), out, pyarrow.csv.WriteOptions(**options))
        yield f"pyarrow-{name}.csv", out.getvalue()


def by_pandas() -> Made:
    import pandas as pd

    frame = pd.DataFrame(columns())
    naive = frame.assign(due=frame["due"].dt.tz_localize(None))
    for name, each, options in [
        ("usual", frame, {}),
        ("without-index", frame, {"index": False}),
        ("named-index", frame.set_index("id"), {}),
        ("text-index", frame.set_index(pd.Index(list("vwxyz"))), {}),
        ("naive", naive, {"index": False}),
        ("int96", frame, {"use_deprecated_int96_timestamps": True}),
        ("of-fastparquet", frame, {"engine": "fastparquet", "index": False}),
        ("of-fastparquet-int96", naive, {"engine": "fastparquet", "index": False, "times": "int96"}),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.parquet")
            each.to_parquet(path, **options)
            yield f"pandas-{name}.parquet", path.read_bytes()
    for name, each, options in [
        ("usual", frame, {}),
        ("without-index", frame, {"index": False}),
        ("named-index", frame.set_index("id"), {}),
        ("semicolons", frame, {"index": False, "sep": ";"}),
        ("tabs", frame, {"index": False, "sep": "\t"}),
        ("quoted", frame, {"index": False, "quoting": csv.QUOTE_ALL}),
        ("nonnumeric", frame, {"index": False, "quoting": csv.QUOTE_NONNUMERIC}),
        ("escaped", frame, {"index": False, "doublequote": False, "escapechar": "\\"}),
        ("crlf", frame, {"index": False, "lineterminator": "\r\n"}),
        ("bom", frame, {"index": False, "encoding": "utf-8-sig"}),
        ("latin-1", frame.assign(text=frame["text"].str.replace("✓", "v")), {"index": False, "encoding": "latin-1"}),
        ("utf-16", frame, {"index": False, "encoding": "utf-16"}),
        ("date-format", frame, {"index": False, "date_format": "%Y-%m-%dT%H:%M:%S.%f%z"}),
        ("naive", naive, {"index": False}),
        ("na-as-text", frame, {"index": False, "na_rep": "NULL"}),
    ]:
        out = io.BytesIO()
        each.to_csv(out, **options)
        yield f"pandas-{name}.csv", out.getvalue()
    for name, each, options in [
        ("iso", frame, {"date_format": "iso"}),
        ("epoch-ms", frame, {"date_format": "epoch"}),
        ("epoch-us", frame, {"date_format": "epoch", "date_unit": "us"}),
        ("naive-iso", naive, {"date_format": "iso"}),
        ("unicode", frame, {"date_format": "iso", "force_ascii": False}),
    ]:
        yield f"pandas-{name}.jsonl", each.to_json(orient="records", lines=True, **options).encode()
    yield "pandas-array.ndjson", frame.to_json(orient="records", date_format="iso").encode()


def by_polars() -> Made:
    import polars as pl

    frame = pl.DataFrame(
        columns(), schema={"id": pl.String, "key": pl.String, "due": pl.Datetime("us", "UTC"), "text": pl.String}
    )
    for name, options in {
        **{
            f"compression-{it}": {"compression": it}
            for it in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4")
        },
        "row-groups": {"row_group_size": 2},
        "small-pages": {"data_page_size": 1},
        "without-statistics": {"statistics": False},
        "all-statistics": {"statistics": "full"},
        "by-pyarrow": {"use_pyarrow": True},
    }.items():
        out = io.BytesIO()
        frame.write_parquet(out, **options)
        yield f"polars-{name}.parquet", out.getvalue()
    for name, each in {
        "categorical": frame.with_columns(pl.col("key").cast(pl.Categorical)),
        "enum": frame.with_columns(pl.col("id").cast(pl.Enum(list("abcde")))),
        "ns": frame.with_columns(pl.col("due").cast(pl.Datetime("ns", "UTC"))),
        "zone": frame.with_columns(pl.col("due").dt.convert_time_zone("America/New_York")),
        "naive": frame.with_columns(pl.col("due").dt.replace_time_zone(None)),
        "duration": frame.with_columns(d=pl.duration(seconds=5)),
        "lists": frame.with_columns(x=pl.lit([1, 2])),
    }.items():
        out = io.BytesIO()
        each.write_parquet(out)
        yield f"polars-{name}.parquet", out.getvalue()
    for name, options in {
        "usual": {},
        "semicolons": {"separator": ";"},
        "tabs": {"separator": "\t"},
        "quoted": {"quote_style": "always"},
        "nonnumeric": {"quote_style": "non_numeric"},
        "never-quoted": {"quote_style": "never"},
        "bom": {"include_bom": True},
        "crlf": {"line_terminator": "\r\n"},
        "iso": {"datetime_format": "iso:strict"},
        "null-as-text": {"null_value": "null"},
    }.items():
        yield f"polars-{name}.csv", frame.write_csv(**options).encode()
    yield "polars-usual.ndjson", frame.write_ndjson().encode()
    yield "polars-text.ndjson", frame.with_columns(due=pl.Series(columns(text_of)["due"])).write_ndjson().encode()
    yield "polars-epoch.ndjson", frame.with_columns(pl.col("due").dt.epoch("ms")).write_ndjson().encode()


def by_duckdb() -> Made:
    import duckdb

    db = duckdb.connect()
    db.execute("SET TimeZone = 'Europe/Berlin'")
    db.execute("CREATE TABLE t (id VARCHAR, key VARCHAR, due TIMESTAMPTZ, text VARCHAR)")
    db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
    naive = "SELECT id, key, (due AT TIME ZONE 'UTC')::TIMESTAMP AS due, text FROM t"
    for name, what, options in [
        ("usual.parquet", "t", ""),
        *(
            (f"{codec}.parquet", "t", f"CODEC '{codec}'")
            for codec in ("uncompressed", "gzip", "zstd", "brotli", "lz4_raw")
        ),
        ("v2.parquet", "t", "PARQUET_VERSION V2"),
        ("naive.parquet", naive, ""),
        ("epoch.parquet", "SELECT id, key, epoch_ms(due) AS due, text FROM t", ""),
        ("hugeint.parquet", "SELECT id, key, epoch_ms(due)::HUGEINT AS due, text FROM t", ""),
        ("decimal.parquet", "SELECT id, key, epoch_ms(due)::DECIMAL(18, 0) AS due, text FROM t", ""),
        ("uuid.parquet", "SELECT *, '0188a5eb-8f3c-7c1a-9d2e-3f4a5b6c7d8e'::UUID AS u FROM t", ""),
        ("interval.parquet", "SELECT *, INTERVAL 90 SECONDS AS d FROM t", ""),
        ("json.parquet", "SELECT id, key, due, json_object('text', text) AS payload FROM t", ""),
        ("nested.parquet", "SELECT *, {'a': [1, 2], 'b': NULL} AS x, map {'p': 1} AS m FROM t", ""),
        ("usual.csv", "t", ""),
        ("semicolons.csv", "t", "DELIMITER ';'"),
        ("quoted.csv", "t", "FORCE_QUOTE *"),
        ("iso.csv", "t", "TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%S.%g%z'"),
        ("without-header.csv", "t", "HEADER false"),
        ("null-as-text.csv", "t", "NULLSTR 'NULL'"),
        ("pipes.csv", "t", "DELIMITER '|'"),
        ("usual.ndjson", "t", "FORMAT json"),
        ("epoch.ndjson", "SELECT id, key, epoch_ms(due) AS due, text FROM t", "FORMAT json"),
        ("array.ndjson", "t", "FORMAT json, ARRAY true"),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            kind = "" if "FORMAT json" in options or path.suffix == ".ndjson" else f"FORMAT {path.suffix[1:]}"
            given = ", ".join(filter(None, (kind, options)))
            db.execute(f"COPY ({what if what != 't' else 'SELECT * FROM t'}) TO '{path}' ({given})")
            yield f"duckdb-{name}", path.read_bytes()


def by_spark() -> Made:
    from pyspark.sql import SparkSession, functions

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    frame = spark.createDataFrame(ROWS, "id string, key string, due timestamp, text string").coalesce(1)
    for name, kind, each, options in [
        ("int96.parquet", "parquet", frame, {}),
        ("decimal.parquet", "parquet", frame.withColumn("due", functions.unix_millis("due").cast("decimal(20,0)")), {}),
        ("ntz.parquet", "parquet", frame.withColumn("due", functions.col("due").cast("timestamp_ntz")), {}),
        ("interval.parquet", "parquet", frame.withColumn("d", functions.expr("INTERVAL '90' SECOND")), {}),
        ("variant.parquet", "parquet", frame.withColumn("v", functions.parse_json(functions.lit('{"a": 1}'))), {}),
        ("usual.csv", "csv", frame, {"header": "true"}),
        ("standard.csv", "csv", frame, {"header": "true", "escape": '"'}),
        ("usual.json", "json", frame, {}),
        ("nulls.json", "json", frame, {"ignoreNullFields": "false"}),
    ]:
        with tempfile.TemporaryDirectory() as folder:
            each.write.mode("overwrite").format(kind).options(**options).save(folder)
            [part] = Path(folder).glob("part-*")
            yield f"spark-{name.replace('.json', '.jsonl')}", part.read_bytes()
    spark.stop()


def by_python() -> Made:
    for name, dialect in {"excel": "excel", "excel-tab": "excel-tab", "unix": "unix"}.items():
        out = io.StringIO(newline="")
        csv.writer(out, dialect).writerows([NAMES, *zip(*columns(text_of).values(), strict=True)])
        yield f"python-{name}.csv", out.getvalue().encode()
    # As a German Excel saves "CSV UTF-8": a byte order mark, semicolons, CRLF, times as the cell shows them.
    local = columns(lambda at: at.strftime("%d.%m.%Y %H:%M"))
    for name, due, first in [
        ("german", local["due"], ""),
        ("separator-line", columns(text_of)["due"], "sep=;\r\n"),
        ("text-times", columns(text_of)["due"], ""),
        ("serials", [str(46053.333333)] * 5, ""),
    ]:
        out = io.StringIO(newline="")
        rows = zip(columns()["id"], columns()["key"], due, columns()["text"], strict=True)
        csv.writer(out, delimiter=";").writerows([NAMES, *rows])
        yield f"excel-{name}.csv", b"\xef\xbb\xbf" + (first + out.getvalue()).encode()
    lines = [dict(zip(NAMES, row, strict=True)) for row in zip(*columns(text_of).values(), strict=True)]
    yield "python-ascii.ndjson", "".join(json.dumps(line) + "\n" for line in lines).encode()
    yield "python-unicode.ndjson", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    yield "python-last-line-open.ndjson", "\n".join(map(json.dumps, lines)).encode()
    yield "python-crlf.ndjson", "".join(json.dumps(line) + "\r\n" for line in lines).encode()
    yield "python-indented.ndjson", json.dumps(lines[0], indent=1).encode()
    array = json.dumps(lines)
    for name, program in {
        "compact": "-c .[]",
        "sorted": "-cS .[]",
        "ascii": "-ca .[]",
        "epoch": '-c .[]|.due|=(sub("[.].*";"Z")|fromdate*1000)',
        "without-nulls": "-c .[]|del(..|nulls)",
        "pretty": ".[]",
    }.items():
        done = subprocess.run(["jq", *program.split()], input=array.encode(), capture_output=True, check=True)
        yield f"jq-{name}.ndjson", done.stdout


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for by in (by_pyarrow, by_pandas, by_polars, by_duckdb, by_spark, by_python):
        try:
            for name, data in by():
                (folder / name).write_bytes(data)
        except Exception as error:
            print(by.__name__, type(error).__name__, str(error)[:300])
    print(len([*folder.iterdir()]), sum(path.stat().st_size for path in folder.iterdir()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
