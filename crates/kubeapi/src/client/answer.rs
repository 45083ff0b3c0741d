//! An answer of the API server as values: body, date, refusal. Not here: what an answer means (`reply`).

use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use kube::client::Body;
use kube::core::Status;

use crate::error::cause;
use crate::reply::ApiAnswer;

/// Shown of an answer that is no `Status`.
const SHOWN_BYTES: usize = 300;

/// The body in one piece, each byte copied once.
pub(super) async fn read_body(
    body: Body,
    most_bytes: usize,
) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let mut body = Limited::new(body.map_err(cause), most_bytes);
    let expected = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut whole = Vec::with_capacity(expected.unwrap_or_default().min(most_bytes));
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole)
}

/// The server's time of the answer.
pub(super) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    // An HTTP date is one of RFC 2822.
    jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()
}

/// Reads an answer that is not 2xx. A body that is no `Status` is shown, cut.
pub(super) fn read_answer(code: u16, headers: &HeaderMap, body: &[u8]) -> ApiAnswer {
    // Dates are allowed by HTTP; the API server and its proxies send seconds.
    let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let mut answer = match serde_json::from_slice::<Status>(body) {
        Ok(status) => from_status(&status),
        Err(_not_a_status) => ApiAnswer {
            message: String::from_utf8_lossy(body.get(..SHOWN_BYTES).unwrap_or(body)).trim().to_owned(),
            ..ApiAnswer::default()
        },
    };
    answer.code = code;
    if let Some(secs) = header {
        answer.retry_after = Some(Duration::from_secs(secs));
    }
    answer
}

pub(super) fn from_status(status: &Status) -> ApiAnswer {
    let details = status.details.as_ref();
    let secs = details.map_or(0, |details| details.retry_after_seconds);
    ApiAnswer {
        code: status.code,
        reason: status.reason.clone(),
        message: status.message.clone(),
        causes: details
            .map(|details| details.causes.iter().map(|it| (it.reason.clone(), it.message.clone())).collect())
            .unwrap_or_default(),
        just_back: false,
        via: String::new(),
        retry_after: (secs > 0).then(|| Duration::from_secs(secs.into())),
    }
}
