//! Requests to services, with deadlines, and without secrets in what is said about them.

use std::time::Duration;

use serde_json::Value as Json;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::{Body, Error as UreqError};

use crate::delivery::Failure;
use crate::environment::Secret;
use crate::error::Error;

/// How long a request may take in all.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer is told in a message.
const TOLD: usize = 300;

/// Sends requests to one service.
#[derive(Debug)]
pub(crate) struct Http {
    agent: Agent,
    service: &'static str,
    headers: Vec<(&'static str, Secret)>,
}

/// What a service answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    /// The answer as JSON; nothing if it is none.
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// What a request carries.
pub(crate) enum Content<'a> {
    Nothing,
    Json(&'a Json),
    Bytes(&'a str, &'a [u8]),
}

impl Http {
    /// Requests to `service`.
    pub(crate) fn new(service: &'static str) -> Self {
        Self::with_verification(service, true)
    }

    /// Requests to `service`, which may have a certificate of its own making if it is not to be verified.
    pub(crate) fn with_verification(service: &'static str, verify: bool) -> Self {
        let tls = TlsConfig::builder().disable_verification(!verify).build();
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .http_status_as_error(false)
            .user_agent("accelerate")
            .tls_config(tls)
            .build();
        Self {
            agent: config.into(),
            service,
            headers: Vec::new(),
        }
    }

    /// The same with a header that holds a secret.
    pub(crate) fn with_header(mut self, name: &'static str, value: Secret) -> Self {
        self.set_header(name, value);
        self
    }

    /// Sends this header from now on.
    pub(crate) fn set_header(&mut self, name: &'static str, value: Secret) {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
    }

    /// Asks, and takes every answer that is not an error of the service.
    pub(crate) fn get(&self, url: &str) -> Result<Answer, Failure> {
        self.checked("GET", url, &Content::Nothing)
    }

    /// Sends JSON.
    pub(crate) fn post(&self, url: &str, content: &Json) -> Result<Answer, Failure> {
        self.checked("POST", url, &Content::Json(content))
    }

    /// Sends, and judges the answer.
    pub(crate) fn checked(
        &self,
        method: &'static str,
        url: &str,
        content: &Content<'_>,
    ) -> Result<Answer, Failure> {
        let answer = self.any_answer(method, url, content)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        Err(self.judged(method, url, &answer))
    }

    /// Sends, and gives every answer that comes.
    pub(crate) fn any_answer(
        &self,
        method: &'static str,
        url: &str,
        content: &Content<'_>,
    ) -> Result<Answer, Failure> {
        let sent = match (method, content) {
            ("GET", _) => {
                let request = self.agent.get(url);
                self.headers
                    .iter()
                    .fold(request, |request, (name, value)| {
                        request.header(*name, value.reveal())
                    })
                    .call()
            }
            (_, content) => {
                let request = if method == "PUT" {
                    self.agent.put(url)
                } else {
                    self.agent.post(url)
                };
                let request = self.headers.iter().fold(request, |request, (name, value)| {
                    request.header(*name, value.reveal())
                });
                match content {
                    Content::Nothing => request.send_empty(),
                    Content::Json(json) => request
                        .content_type("application/json")
                        .send(json.to_string().as_str()),
                    Content::Bytes(kind, bytes) => request.content_type(*kind).send(*bytes),
                }
            }
        };
        self.answer(method, url, sent)
    }

    fn answer(
        &self,
        method: &str,
        url: &str,
        sent: Result<Response<Body>, UreqError>,
    ) -> Result<Answer, Failure> {
        let answer = sent.and_then(|mut response| {
            let status = response.status().as_u16();
            let body = response.body_mut().read_to_string()?;
            Ok(Answer { status, body })
        });
        answer.map_err(|error| {
            let action = format!("{method} {}", plain_url(url));
            let error = self.error(action, &error.to_string());
            Failure::Later(error)
        })
    }

    /// What an answer other than yes means.
    pub(crate) fn judged(&self, method: &str, url: &str, answer: &Answer) -> Failure {
        let action = format!("{method} {}", plain_url(url));
        let told: String = answer.body.chars().take(TOLD).collect();
        let error = self.error(
            action,
            &format!("status {}: {}", answer.status, told.trim()),
        );
        match answer.status {
            // The key may be set right, the service put up, the limit lifted.
            401 | 403 | 404 | 407 | 408 | 425 | 429 => Failure::Later(error),
            400..500 => Failure::Refused(error),
            _ => Failure::Later(error),
        }
    }

    fn error(&self, action: String, message: &str) -> Error {
        let hide = |text: String, (_, secret): &(&str, Secret)| secret.hide_in(&text);
        Error::Service {
            service: self.service,
            action,
            message: self.headers.iter().fold(message.to_owned(), hide),
        }
    }
}

/// An address without user, password and query, which may hold secrets.
fn plain_url(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            format!("{scheme}://{host}/{path}")
        }
        None => url.to_owned(),
    }
}

/// A header that says who one is by name and password.
pub(crate) fn basic(user: &str, password: &str) -> Secret {
    use base64::Engine as _;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    Secret::new(format!("Basic {pair}"))
}

/// One file as a form, and the type of that content.
pub(crate) fn form(field: &str, file_name: &str, kind: &str, bytes: &[u8]) -> (String, Vec<u8>) {
    let boundary = format!("accelerate-{}", crate::identifier::hexadecimal());
    let file_name = file_name.replace(['"', '\r', '\n'], "_");
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{file_name}\"\r\n\
         Content-Type: {kind}\r\n\r\n"
    );
    let mut body = head.into_bytes();
    body.extend_from_slice(bytes);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={boundary}"), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_without_secrets() {
        assert_eq!(plain_url("https://u:p@host/a/b?key=x"), "https://host/a/b");
        assert_eq!(plain_url("http://host"), "http://host/");
        let http = Http::new("test").with_header("Authorization", Secret::new("Bearer abc"));
        let answer = Answer {
            status: 400,
            body: "no: Bearer abc".to_owned(),
        };
        let Failure::Refused(error) = http.judged("POST", "http://h/x", &answer) else {
            panic!("400 is final");
        };
        let text = error.to_string();
        assert_eq!(
            text,
            "test: POST http://h/x failed: status 400: no: [redacted]"
        );
        assert!(!format!("{http:?}").contains("abc"));
    }

    #[test]
    fn a_login_is_what_the_standard_says() {
        let expected = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(basic("Aladdin", "open sesame").reveal(), expected);
    }
}
