# Two steps: what builds the package is not in the image that runs it.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY src src
# Pinned like every other installation; nothing is compiled, all wheels are ready-made.
RUN python -m venv /opt/headwater \
 && /opt/headwater/bin/pip install --no-cache-dir --disable-pip-version-check \
      -c requirements/constraints.txt hatchling \
 && /opt/headwater/bin/pip install --no-cache-dir --disable-pip-version-check \
      -c requirements/constraints.txt --no-build-isolation . \
 && /opt/headwater/bin/pip uninstall --yes --quiet hatchling pip

FROM python:3.12-slim
LABEL org.opencontainers.image.title="Headwater" \
      org.opencontainers.image.description="One durable event log for one machine" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 headwater \
 && useradd --system --uid 10001 --gid headwater --no-create-home --shell /usr/sbin/nologin headwater \
 && install --directory --owner headwater --group headwater --mode 0700 /data
COPY --from=build /opt/headwater /opt/headwater
ENV PATH=/opt/headwater/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADWATER_HOST=0.0.0.0 \
    HEADWATER_DATA_DIR=/data \
    HEADWATER_KAFKA_PORT=off \
    HEADWATER_RCPX_PORT=off
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /data
VOLUME /data
# Kafka (9092) and RCPX (7401) are off until somebody turns them on, with users and keys.
EXPOSE 4000 9092 7401
STOPSIGNAL SIGTERM
# A recovering server is alive but not ready; ten minutes of it are no failure.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10m --start-interval=1s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:4000/readyz', timeout=2)"]
ENTRYPOINT ["headwater"]
CMD ["serve", "--log-json"]
