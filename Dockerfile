# The server, the worker and the command line of osqueue in one image: docs/server.md.
FROM python:3.13-slim AS build
COPY pyproject.toml hatch_build.py README.md LICENSE /src/
COPY layers/osqueue/python/osqueue /src/layers/osqueue/python/osqueue
RUN pip install --no-cache-dir --prefix=/install "/src[serve,s3,http]"

FROM python:3.13-slim
COPY --from=build /install /usr/local
RUN useradd --system --uid 10001 osqueue && install -d -o osqueue /var/lib/osqueue
USER 10001
ENV OSQUEUE_ADDRESS=file:///var/lib/osqueue
VOLUME /var/lib/osqueue
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz')"]
ENTRYPOINT ["osqueue"]
CMD ["serve", "--host", "0.0.0.0", "--tokens", "/etc/osqueue/tokens.toml"]
