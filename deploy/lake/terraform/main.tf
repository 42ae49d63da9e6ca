# The bucket of the lake, what the audit may do with it, and how long old table versions are kept. The captures lie in a
# bucket of their own, whose rules are in deploy/capture: the audit only reads it.

terraform {
  required_version = ">= 1.6"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60"
    }
  }
}

variable "bucket" {
  type        = string
  description = "Name of the lake's bucket."
}

variable "captures_bucket" {
  type        = string
  description = "Name of the bucket that kraft-capture ships to."
}

variable "trusted_principal" {
  type        = string
  description = "ARN of who runs the audit: an EMR, Kubernetes or Databricks role."
}

resource "aws_kms_key" "lake" {
  description         = "kraft-audit lake"
  enable_key_rotation = true
}

resource "aws_s3_bucket" "lake" {
  bucket = var.bucket
}

resource "aws_s3_bucket_public_access_block" "lake" {
  bucket                  = aws_s3_bucket.lake.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "lake" {
  bucket = aws_s3_bucket.lake.id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = aws_kms_key.lake.arn
    }
    bucket_key_enabled = true
  }
}

# Delta keeps its own versions, and `kraft-audit maintain` deletes what none of them names. A bucket's versions are for
# accidents; a part of an upload that was given up is of no use.
resource "aws_s3_bucket_versioning" "lake" {
  bucket = aws_s3_bucket.lake.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "lake" {
  bucket     = aws_s3_bucket.lake.id
  depends_on = [aws_s3_bucket_versioning.lake]

  rule {
    id     = "accidents"
    status = "Enabled"
    filter {}
    noncurrent_version_expiration {
      noncurrent_days = 30
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 3
    }
  }
}

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "AWS"
      identifiers = [var.trusted_principal]
    }
  }
}

data "aws_iam_policy_document" "audit" {
  statement {
    sid       = "ReadCaptures"
    actions   = ["s3:GetObject", "s3:ListBucket"]
    resources = ["arn:aws:s3:::${var.captures_bucket}", "arn:aws:s3:::${var.captures_bucket}/*"]
  }
  statement {
    sid       = "ListLake"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.lake.arn]
  }
  statement {
    sid       = "WriteLake"
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = ["${aws_s3_bucket.lake.arn}/*"]
  }
  statement {
    sid       = "EncryptLake"
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [aws_kms_key.lake.arn]
  }
}

resource "aws_iam_role" "audit" {
  name               = "kraft-audit"
  assume_role_policy = data.aws_iam_policy_document.trust.json
}

resource "aws_iam_role_policy" "audit" {
  name   = "kraft-audit"
  role   = aws_iam_role.audit.id
  policy = data.aws_iam_policy_document.audit.json
}

output "lake" {
  value = "s3://${aws_s3_bucket.lake.id}/lake"
}

output "role" {
  value = aws_iam_role.audit.arn
}
