"""tickwheel beside Kafka's own timer, each in its own language: `python -m benches.kafka`.

- `build`: fetches Kafka's jars with Maven, and compiles the driver and the Rust peers
- `KafkaTimer.java`: the works of `benches/peers` on Kafka's timer, in a warm JVM
- `works`: which works and sides there are
- `measure`: one work on one side, in the process that `benches/python/suite.py` starts for it
"""
