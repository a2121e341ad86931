# Two steps: what builds the package is not in the image that runs it.
FROM python:3.12-slim AS build
WORKDIR /source
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY requirements requirements
COPY src src
# Pinned like every other installation. Only our own hot loops are compiled, all other wheels are ready-made. What
# builds the package has an environment of its own, so that the one that runs has what the package needs and no more.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check \
      -c requirements/constraints.txt hatchling cython pyarrow setuptools \
 && HEADWATER_COMPILED=1 /opt/build/bin/pip wheel --no-cache-dir --disable-pip-version-check \
      --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/headwater \
 && /opt/build/bin/pip --python /opt/headwater/bin/python install --no-cache-dir \
      --disable-pip-version-check -c requirements/constraints.txt /wheels/*.whl

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
# No --start-interval: Podman and Buildah of Debian 12 do not build a file that has it.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10m --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:4000/readyz', timeout=2)"]
ENTRYPOINT ["headwater"]
CMD ["serve", "--log-json"]
