# tickwheel serve in a container. docs/operations.md says how it is run.
#
#   docker build -t tickwheel .
#   docker run -v tickwheel:/var/lib/tickwheel -e TICKWHEEL_SERVE_TO=https://example.org/hook ... tickwheel

ARG PYTHON=3.13
ARG DEBIAN=bookworm

FROM rust:1-slim-${DEBIAN} AS rust

FROM python:${PYTHON}-${DEBIAN} AS build
COPY --from=rust /usr/local/cargo /usr/local/cargo
COPY --from=rust /usr/local/rustup /usr/local/rustup
ENV CARGO_HOME=/usr/local/cargo RUSTUP_HOME=/usr/local/rustup PATH=/usr/local/cargo/bin:$PATH
WORKDIR /src
COPY . .
# Which sources, destinations and pages there are: the extras of pyproject.toml.
ARG EXTRAS=serve,postgresql,kafka,report
RUN pip install --no-cache-dir -c constraints.txt maturin \
    && maturin build --release --locked --out /wheels \
    && python -m venv /opt/tickwheel \
    && /opt/tickwheel/bin/pip install --no-cache-dir -c constraints.txt "$(ls /wheels/*.whl)[${EXTRAS}]"

FROM python:${PYTHON}-slim-${DEBIAN}
COPY --from=build /opt/tickwheel /opt/tickwheel
# A volume that is made for this folder has its owner.
RUN useradd --system --uid 10001 --no-create-home tickwheel && install -d -o tickwheel -m 700 /var/lib/tickwheel
USER 10001
WORKDIR /var/lib/tickwheel
VOLUME /var/lib/tickwheel
# Options of serve; what `docker run -e` says replaces them. The port of health shows no more than a word.
ENV PATH=/opt/tickwheel/bin:$PATH \
    TICKWHEEL_SERVE_STORE=/var/lib/tickwheel/tickwheel.db \
    TICKWHEEL_SERVE_HEALTH=0.0.0.0:7402
EXPOSE 7400 7402
STOPSIGNAL SIGTERM
# One that waits for its store lives too.
HEALTHCHECK --start-period=30s CMD ["python", "-c", "from http.client import HTTPConnection as To; to = To('127.0.0.1', 7402, timeout=5); to.request('GET', '/livez'); raise SystemExit(to.getresponse().status != 200)"]
ENTRYPOINT ["tickwheel"]
CMD ["serve"]
