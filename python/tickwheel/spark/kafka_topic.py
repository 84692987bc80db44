"""Asks Kafka's admin client for the identity of a topic, and for its first offsets (rule S4).

The client is in the JVM, with the jars that Spark's source needs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_ANSWER_WITHIN_MS: Final = "20000"
_PREFIX: Final = "kafka."


class Topic:
    """A topic of a cluster. `options`: of Spark's source; those that begin with `kafka.` are for the client. Errors of
    each method: `OSError` if the brokers do not answer, or have no such topic.
    """

    def __init__(self, session: SparkSession, brokers: str, name: str, options: Mapping[str, str]) -> None:
        self._jvm: Any = session.sparkContext._jvm
        self.name = name
        self._settings = {
            "bootstrap.servers": brokers,
            "default.api.timeout.ms": _ANSWER_WITHIN_MS,
            "request.timeout.ms": _ANSWER_WITHIN_MS,
            **{it.removeprefix(_PREFIX): value for it, value in options.items() if it.startswith(_PREFIX)},
        }

    def identity(self) -> str:
        """The ids of the cluster and the topic. A topic that is deleted and made anew has another id."""
        with self._client() as client:
            cluster = client.describeCluster().clusterId().get()
            return f"cluster {cluster}, topic {self.name}, id {self._describe(client).topicId()}"

    def begin(self) -> Mapping[int, int]:
        """For each partition the offset of its first record that was not deleted."""
        with self._client() as client:
            earliest = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest()
            wanted = self._jvm.java.util.HashMap()
            for it in self._describe(client).partitions():
                wanted.put(self._jvm.org.apache.kafka.common.TopicPartition(self.name, it.partition()), earliest)
            found = client.listOffsets(wanted).all().get()
            return {it.partition(): found.get(it).offset() for it in found.keySet()}

    def _describe(self, client: Any) -> Any:
        names = self._jvm.java.util.ArrayList()
        names.add(self.name)
        return client.describeTopics(names).allTopicNames().get().get(self.name)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        properties = self._jvm.java.util.Properties()
        for name, value in self._settings.items():
            properties.setProperty(name, value)
        try:
            client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
            try:
                yield client
            finally:
                client.close()
        except (Py4JError, TypeError) as error:  # the second: these jars have no such client
            cause = getattr(error, "java_exception", None)
            raise OSError(0, str(cause.getMessage() if cause is not None else error)) from error
